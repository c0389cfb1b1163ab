"""What backwards inside a node would add to ``.grad`` is taken instead: reentrant checkpoints run one in their node."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from ..observe import private
from ..observe.arguments import as_list, node_of
from ..observe.graphs import Plans, walk
from ..records import ACCUMULATE_SEQ
from .single import is_python


class Redirect(TorchFunctionMode):
    """On while a Python node runs: accumulators of a backward in there write nothing.

    :param take: gets each leaf and the gradient that would be accumulated.
    """

    def __init__(self, take: Callable[[torch.Tensor, torch.Tensor], None]) -> None:
        super().__init__()
        self._take = take

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func not in (torch.Tensor.backward, torch.autograd.backward):
            return func(*args, **kwargs)
        roots = args[0] if args else kwargs.get("tensors")
        nodes = walk([node_of(root) for root in as_list(roots)], Plans()).nodes
        with self.on(nodes):
            return func(*args, **kwargs)

    @contextmanager
    def on(self, nodes: Sequence[Any]) -> Iterator[None]:
        """Inside, a backward over `nodes` accumulates nothing, and no hook is told that something was accumulated."""
        handles: list[Any] = []
        depth = private.mode_depth()
        with ExitStack() as stack:
            stack.callback(_remove, handles)
            for node in nodes:
                if is_python(node):
                    handles += (node.register_prehook(self._enter), node.register_hook(self._leave))
                elif node._sequence_nr() == ACCUMULATE_SEQ:
                    handles.append(node.register_prehook(_Take(self._take, node.variable)))
                    stack.callback(_put_back, *_taken_out(private.post_accumulate_hooks(node.variable)))
            try:
                yield
            except BaseException:
                while private.mode_depth() > depth:
                    private.pop_function_mode()
                raise

    def _enter(self, *grads: Any) -> None:
        private.push_function_mode(self)

    def _leave(self, *grads: Any) -> None:
        private.pop_function_mode()


class _Take:
    __slots__ = ("_leaf", "_take")

    def __init__(self, take: Callable[[torch.Tensor, torch.Tensor], None], leaf: torch.Tensor) -> None:
        self._take, self._leaf = take, leaf

    def __call__(self, grads: Any) -> tuple[None]:
        if grads[0] is not None:
            self._take(self._leaf, grads[0])
        return (None,)


def _taken_out(hooks: dict[int, Any]) -> tuple[dict[int, Any], dict[int, Any]]:
    kept = dict(hooks)
    hooks.clear()
    return hooks, kept


def _put_back(hooks: dict[int, Any], kept: dict[int, Any]) -> None:
    new = dict(hooks)
    hooks.clear()
    hooks.update({**kept, **new})


def _remove(handles: list[Any]) -> None:
    while handles:
        handles.pop().remove()
