"""``backprobe.register_multi_grad_hook`` calls one function with the gradients of several tensors.

It is what ``torch.autograd.graph.register_multi_grad_hook`` is for. Ours is another because of what torch's does (seen
on 2.13): its count of gradients to come is shared by all backward calls, so a call inside another makes it miss the
outer one; on a parameter, ``autograd.grad`` raises; and on a tensor inside a graph it keeps the graph alive for ever
unless the handle is removed, as its hooks hold the nodes that hold them.

Note [State of one backward call]: The state of one backward call belongs to a callback that the engine holds until the
    call is over, well or badly; we hold it weakly. So a backward that raises leaves no gradients behind.
Note [Hooks hold nothing]: Hooks hold tensors weakly, and no nodes. So what is known of a tensor that is gone is only
    that its gradient may come.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType

import torch
from torch import nn

from ...basics.errors import BackprobeError, add_note
from ...basics.select import Choice, Selection, nothing_chosen
from ...torch_internals import autograd_engine, references
from .rules import name_of


class _Round:
    """The gradients of one backward call that have arrived so far."""

    def __init__(self, size: int) -> None:
        """Begin without gradients.
        :param size: the number of tensors.
        """
        self.grads: list[torch.Tensor | None] = [None] * size
        #: Tensors whose gradient may still come.
        self.waiting: set[int] = set(range(size))
        self.fired = False


class MultiHook:
    """A function that is called with several gradients; ``backprobe.register_multi_grad_hook`` has attached it."""

    def __init__(
        self, names: list[str] | None, tensors: list[torch.Tensor], function: Callable[..., object], mode: str
    ) -> None:
        """Register a hook on each tensor.
        :param names: names of the tensors; with them, the function gets dicts.
        """
        self._names, self._function, self._any = names, function, mode == "any"
        #: Weak reference and number of the node, to know it again (Note [Hooks hold nothing]); -1 for a leaf.
        self._tensors = [
            (references.tensor_ref(t), -1 if t.grad_fn is None else t.grad_fn._sequence_nr()) for t in tensors
        ]
        self._rounds: weakref.WeakValueDictionary[int, _Round] = weakref.WeakValueDictionary()
        self._lock = threading.Lock()
        self._active = True
        self._handles = [tensor.register_hook(self._hook(i)) for i, tensor in enumerate(tensors)]

    def _hook(self, i: int) -> Callable[[torch.Tensor | None], None]:
        """Return the tensor hook for tensor number `i`."""

        def came(grad: torch.Tensor | None) -> None:
            """Take note of the gradient, unless the hooks were removed."""
            if self._active:
                self._came(i, grad)

        return came

    def _came(self, i: int, grad: torch.Tensor | None) -> None:
        """Record the gradient of tensor number `i`, and call the function if no other has to be waited for."""
        task = autograd_engine.graph_task()
        if task < 0:  # a node is called directly: no backward call
            return
        with self._lock:
            round_ = self._rounds.get(task)
            if round_ is None:
                round_ = self._rounds[task] = _Round(len(self._tensors))
                round_.waiting = {k for k in round_.waiting if k == i or self._may_come(k)}
                autograd_engine.at_end(_Over(self, round_))
            if round_.fired:
                return
            round_.grads[i] = grad
            round_.waiting.discard(i)
            if grad is None if self._any else round_.waiting:
                return
            round_.fired = True
        self._call(round_, i)

    def _may_come(self, k: int) -> bool:
        """Return whether tensor number `k` may get a gradient in the running backward call; true if unknown."""
        ref, seq = self._tensors[k]
        tensor = ref()
        if seq < 0 or tensor is None or tensor.grad_fn is None or tensor.grad_fn._sequence_nr() != seq:
            return True
        return autograd_engine.runs_node(tensor.grad_fn) is not False

    def over(self, round_: _Round) -> None:
        """Call the function at the end of the backward call, with the gradients that arrived, unless it was called."""
        with self._lock:
            if round_.fired or self._any or not self._active or all(g is None for g in round_.grads):
                return
            round_.fired = True
        self._call(round_, None)

    def _call(self, round_: _Round, i: int | None) -> None:
        """Call the function with the gradients of a round.
        :param i: the number of the first gradient, for mode ``"any"``.
        """
        grads, names = round_.grads, self._names
        round_.grads = []
        try:
            if self._any:
                assert i is not None
                self._function(grads[i] if names is None else {names[i]: grads[i]})
            else:
                self._function(grads if names is None else dict(zip(names, grads, strict=True)))
        except Exception as error:
            add_note(error, f"backprobe: in {name_of(self._function)}, which register_multi_grad_hook calls")
            raise

    def remove(self) -> None:
        """Take the hooks off. Does nothing the second time."""
        self._active = False
        while self._handles:
            self._handles.pop().remove()

    def __enter__(self) -> MultiHook:
        """Return this object; the hooks are active already."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Remove the hooks."""
        self.remove()


class _Over:
    """The callback that holds a round (Note [State of one backward call])."""

    def __init__(self, hook: MultiHook, round_: _Round) -> None:
        """Take the hook and the round to keep."""
        self._hook, self._round = hook, round_

    def __call__(self) -> None:
        """Finish the round at the end of the backward call."""
        self._hook.over(self._round)


def register_multi_grad_hook(
    tensors: nn.Module | Mapping[str, torch.Tensor] | Sequence[torch.Tensor],
    function: Callable[..., None],
    *,
    mode: str = "all",
    select: Selection = None,
) -> MultiHook:
    """Call a function with the gradients of several tensors, once in each backward call that reaches one of them.

    Nested calls and calls of several threads are kept apart. The function looks; what it returns is ignored, since
    the engine has gone on with the earlier gradients when the last one comes. To change gradients use ``edit``.

    :param tensors: a sequence of tensors: the function gets a list of gradients in their order. A mapping from names to
        tensors, or a model (its parameters that require a gradient): it gets a dict from names to gradients.
    :param function: called on the engine's thread, with the gradients as the tensors' hooks see them. It must not write
        into them.
    :param mode: ``"all"``: called when all gradients are there, with ``None`` for tensors that get none. Where one gets
        none it is called as soon as the engine can tell, at the latest when the backward call ends. ``"any"``: called
        with the first gradient alone (in a mapping: a dict of one name).
    :param select: which names of a mapping or model.
    :raises BackprobeError: a tensor needs no gradient, nothing fits, or ``mode`` is neither.

    >>> import torch, backprobe as bp
    >>> a, b = torch.ones(2, requires_grad=True), torch.ones(3, requires_grad=True)
    >>> show = lambda grads: print({k: g.sum().item() for k, g in grads.items()})
    >>> with bp.register_multi_grad_hook({"a": a, "b": b}, show):
    ...     (2 * a.sum() + b.sum()).backward()
    {'a': 4.0, 'b': 3.0}
    """
    if mode not in ("all", "any"):
        raise BackprobeError(f"mode is {mode!r}; it is 'all' or 'any'")
    if not callable(function):
        raise BackprobeError(f"the function is a {type(function).__name__}, which cannot be called")
    named: Mapping[str, torch.Tensor] | None = None
    if isinstance(tensors, nn.Module):
        named = {name: p for name, p in tensors.named_parameters() if p.requires_grad}
    elif isinstance(tensors, Mapping):
        named = tensors
    if named is None:
        if select is not None:
            raise BackprobeError(
                "select chooses names; give register_multi_grad_hook a mapping from names to tensors, or a model"
            )
        chosen: list[torch.Tensor] = list(tensors)  # type: ignore[arg-type]
        names, what = None, [f"tensor {i}" for i in range(len(chosen))]
    else:
        fits = Choice(select)
        names = [name for name, tensor in named.items() if fits(name, tensor)]
        fits.check(named, "tensor")
        chosen, what = [named[name] for name in names], [repr(name) for name in names]
    if not chosen:
        raise nothing_chosen(named or (), select, "tensor")
    for text, tensor in zip(what, chosen, strict=True):
        if not isinstance(tensor, torch.Tensor):
            raise BackprobeError(f"{text} is a {type(tensor).__name__}, not a tensor")
        if not tensor.requires_grad:
            raise BackprobeError(f"{text} does not require a gradient, so none will come; leave it out")
    return MultiHook(names, chosen, function, mode)
