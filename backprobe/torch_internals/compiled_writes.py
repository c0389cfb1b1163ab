"""Finds the line of a graph that writes to a tensor which its backward needs, so that torch refuses to compile it.

The compiler traces the backward together with the forward, and hits the error that autograd would raise. The error is
provoked once more here, op by op and with fake tensors, which have shapes and versions but no values: nothing is
computed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from ..basics.torch_texts import IN_PLACE, IN_PLACE_DETAIL
from .compiled_graphs import CompiledGraph, RegionCall
from .region_reexecution import Notes, reexecute, run_on_own_thread
from .saved_by_nodes import saved_tensors
from .thread_state import autocast_now


@dataclass(frozen=True)
class RefusedWrite:
    """The graph node that wrote, the node that had saved the written tensor, and that tensor's shape and versions."""

    write: torch.fx.Node
    saver: torch.fx.Node
    shape: tuple[int, ...]
    saved: int
    found: int


class _VersionNotes(Notes):
    """Notes of which node took which storage to which version."""

    def __init__(self) -> None:
        """Begin without notes."""
        super().__init__(False)
        self._writes: list[tuple[torch.fx.Node, int, int]] = []
        self._alive: list[object] = []  # an address identifies a storage only while it lives

    def input_states(self, tensors: Sequence[torch.Tensor]) -> list[Any]:
        """Return the version of each tensor."""
        return [t._version for t in tensors]

    def note(self, node: torch.fx.Node, given: list[Any], before: list[Any], out: object) -> None:
        """Record the run of `node`, and which of its inputs it wrote to.
        :param given: its input tensors.
        :param before: their versions before the run.
        :param out: its result.
        """
        super().note(node, given, before, out)
        self._alive += [*given, out]
        for t, version in zip(given, before, strict=True):
            if t._version > version:
                self._writes.append((node, t.untyped_storage()._cdata, t._version))
                super().note(node, [], [], t)  # the nodes that the write created

    def node_past_version(self, tensor: torch.Tensor, version: int) -> torch.fx.Node | None:
        """Return the node that took the storage of `tensor` past `version`."""
        storage = tensor.untyped_storage()._cdata
        return next((node for node, where, after in self._writes if where == storage and after > version), None)


def refused_write(region: CompiledGraph, args: Sequence[object]) -> RefusedWrite | None:
    """Return the first write that makes the backward of `region` on `args` fail; ``None`` if there is none."""
    call = RegionCall(region, tuple(args), (None,) * len(args), autocast_now(), None)
    found: RefusedWrite | None = run_on_own_thread(lambda: _find_refused_write(call), call)
    return found


def _find_refused_write(call: RegionCall) -> RefusedWrite | None:
    """Run the region with fake tensors, provoke the error in its backward, and return the write; runs on its own
    thread.
    :returns: ``None`` if the backward does not fail, or the write is not found.
    """
    from torch._subclasses.fake_tensor import FakeTensorMode

    notes, running = _VersionNotes(), []

    def before(node: object) -> Callable[[object], None]:
        """Return a hook that records that `node` begins to run."""
        return lambda _: running.append(node)

    with FakeTensorMode(allow_non_fake_inputs=True) as fake, torch.enable_grad():
        call.args = tuple(fake.from_tensor(a) if isinstance(a, torch.Tensor) else a for a in call.args)
        out, given = reexecute(call, notes)
        outs = [t for t in tree_leaves(out) if isinstance(t, torch.Tensor) and t.requires_grad]
        wanted = [t for t in given if t.requires_grad]
        if not outs or not wanted:
            return None
        for node in notes.of:
            node.register_prehook(before(node))
        try:
            torch.autograd.grad(outs, wanted, [torch.ones_like(t) for t in outs], allow_unused=True)
        except RuntimeError as error:
            detail = IN_PLACE_DETAIL.search(str(error)) if IN_PLACE in str(error) else None
            if detail is None or not running:
                return None
            shape = tuple(int(n) for n in detail["shape"].split(",") if n.strip())
            found, saved = int(detail["found"]), int(detail["saved"])
            for _, tensor in saved_tensors(running[-1]):
                write = notes.node_past_version(tensor, saved) if tensor._version == found else None
                if write is not None and tuple(tensor.shape) == shape:
                    return RefusedWrite(write, notes.of[running[-1]], shape, saved, found)
    return None
