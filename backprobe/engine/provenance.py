"""Provenance of nodes: the module and source line that created each, from a session's op log of the forward.

Nodes carry a sequence number of the thread that created them, and the recorder logs the counter after each op. If the
recorder did not see an op, its module and line are ``None``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from torch import nn

from ..basics.errors import BackprobeError
from ..observe.forward.leaves import Leaves
from ..observe.forward.modules import ModuleWatch
from ..observe.forward.node_places import line_and_op, makers
from ..observe.forward.oplog import Entry
from ..observe.forward.torch_call_recorder import TorchCallRecorder
from ..records import ACCUMULATE_SEQ, Site
from ..source.frames import Frames
from ..torch_internals import code_objects, private

if TYPE_CHECKING:
    import torch

#: The text for unknown modules and lines.
UNKNOWN = (
    "modules and lines are not known, because backprobe did not watch the forward: run it in "
    "'with backprobe.trace(model):', or set backprobe.breakpoint_backward(...) before it"
)


@dataclass(frozen=True)
class Provenance:
    """The origin of a node. ``module`` is ``None`` if unknown, ``""`` outside every inner module."""

    module: str | None = None
    class_name: str = ""
    call: int = 1
    site: Site | None = None
    op: str = ""
    parameter: str | None = None
    #: Library lines between ``site`` and the op, each called by the one before it.
    library: tuple[Site, ...] = ()

    @property
    def name(self) -> str:
        """The module, with ``:2`` for a second call; a description if unknown."""
        if self.module is None:
            return "(module not known)"
        path = self.module or (f"({self.class_name})" if self.class_name else "(no module)")
        return path if self.call == 1 else f"{path}:{self.call}"

    @property
    def lines(self) -> tuple[Site, ...]:
        """The user's line and the library lines inside it, each called by the one before it."""
        return self.library if self.site is None else (self.site, *self.library)

    def shown(self, library: bool) -> int | None:
        """Return the index in ``lines`` to display: the user's line, or that of the library which called torch."""
        if not library:
            return None if self.site is None else 0
        outside = [n for n, site in enumerate(self.lines) if not site.file.startswith(code_objects.TORCH)]
        if len(outside) > (self.site is not None):
            return outside[-1]
        return len(self.lines) - 1 if self.lines else None


NOWHERE = Provenance()
#: Log entry id -> provenance of the nodes that its op created.
Found: TypeAlias = dict[int, Provenance]


class Forward:
    """Information about the forward: provenance of nodes and names of leaves.

    :param recorder: the recorder of a session that watched the forward; without one only parameters have names.
    """

    def __init__(
        self,
        recorder: TorchCallRecorder | None,
        modules: ModuleWatch,
        leaves: Leaves,
        frames: Frames,
    ) -> None:
        """Take the parts of the session that watched the forward.
        :param modules: the watched modules, which name the paths.
        :param leaves: the leaves, which name the parameters.
        :param frames: tells the user's code lines from a library's.
        """
        self.recorder, self.modules, self.leaves, self.frames = recorder, modules, leaves, frames

    @property
    def watched(self) -> bool:
        """Whether a session watched the forward and logged at least one op."""
        return self.recorder is not None and bool(self.recorder.log.ends)

    def places(self, nodes: Sequence[torch.autograd.graph.Node], seqs: Sequence[int], found: Found) -> list[Provenance]:
        """Return the provenance of each of `nodes`.

        :param found: cache for this call; one entry serves all nodes of its op, and all steps.
        """
        recorder = self.recorder
        made: dict[int, Entry] = {}
        with private.disable_function_modes():
            if recorder is not None and recorder.log.ends:
                log = recorder.log
                made = dict(makers(seqs, log.ends, log.entries, log.first))
            return [
                self._leaf(node) if seq == ACCUMULATE_SEQ else self._made(made.get(i), found)
                for i, (node, seq) in enumerate(zip(nodes, seqs, strict=True))
            ]

    def any_place(
        self, leaves: Iterable[torch.autograd.graph.Node], seqs: Sequence[int], found: Found
    ) -> list[Provenance]:
        """Return each distinct provenance of nodes with these numbers and of `leaves`: far fewer than nodes."""
        own = [seq for seq in seqs if seq != ACCUMULATE_SEQ]
        with private.disable_function_modes():
            entries = self.recorder.log.slice(min(own), max(own))[1] if self.recorder is not None and own else []
            different = {id(entry): entry for entry in entries}.values()
            return [*map(self._leaf, leaves), *(self._made(entry, found) for entry in different)]

    def _leaf(self, node: object) -> Provenance:
        """Return the provenance of an ``AccumulateGrad`` node: the module that owns the parameter, and the parameter's
        name.
        :returns: an empty provenance if `node` has no leaf.
        """
        variable = getattr(node, "variable", None)
        if variable is None:
            return Provenance()
        leaf = self.leaves.get(variable)
        name = self.leaves.name(leaf)
        if leaf.root is None:
            return Provenance("" if self.watched else None, parameter=name)
        owner = leaf.owner() if leaf.owner is not None else None
        module = self.modules.full_name(leaf.root, leaf.path.rpartition(".")[0])
        return Provenance(module, type(owner).__name__ if owner is not None else "", parameter=name)

    def _made(self, entry: Entry | None, found: Found) -> Provenance:
        """Return the provenance of the nodes that the op of log entry `entry` created; ``NOWHERE`` without an entry.
        :param found: cache by entry, read and filled.
        """
        if entry is None:
            return NOWHERE
        known = found.get(id(entry))
        if known is None:
            where = entry[3]
            names = (where.class_name, where.call) if where else ("", 1)
            module, inside = self.modules.name_of(where), self.frames.inside(entry[4])
            known = Provenance(module, *names, *line_and_op(entry, self.frames), library=inside)
            found[id(entry)] = known
        return known

    def module_at(self, path: str) -> nn.Module | None:
        """Return the module with the displayed path `path`, if it is alive."""
        for root in self.modules.roots:
            module = root.ref()
            if module is None:
                continue
            for inner, (ref, name) in root.paths.items():
                found = ref()
                if found is not None and id(found) == inner and self.modules.full_name(root, name) == path:
                    return found
        return None


def around(module: str) -> list[str]:
    """Return the path `module` and those of its ancestors, the outermost last."""
    paths = [module]
    while paths[-1]:
        paths.append(paths[-1].rpartition(".")[0])
    return paths


def inside(module: str | None, outer: str) -> bool:
    """Return whether the path `module` is `outer` or below it."""
    return module is not None and (not outer or module == outer or module.startswith(outer + "."))


def forward_of(model: nn.Module | None, trace: object, thread: int) -> Forward:
    """Return the available information about graphs that this thread has built.

    :param trace: a ``backprobe.trace`` that was active during the forward; without it, one that is active now.
    :raises BackprobeError: `model` is no module, or `trace` no trace that was entered.
    """
    if model is not None and not isinstance(model, nn.Module):
        raise BackprobeError(f"model is a {type(model).__name__}; give a torch.nn.Module, or nothing")
    session = getattr(trace, "_session", None)
    if trace is not None and session is None:
        raise BackprobeError(
            f"trace is a {type(trace).__name__} that did not watch anything; give the trace of "
            "'with backprobe.trace(model) as trace:' around the forward"
        )
    eyes = (
        [session.forward.recorder]
        if session is not None
        else [m for m in private.function_modes() if isinstance(m, TorchCallRecorder)]
    )
    recorder = next((e for e in reversed(eyes) if e.thread == thread), None)
    if recorder is not None:
        modules, frames = recorder.modules, recorder.frames
    else:
        frames = Frames()
        modules = ModuleWatch(frames)
    leaves = Leaves(modules, frames)
    if model is not None:
        modules.add_root(model, "model")
    leaves.scan()
    return Forward(recorder, modules, leaves, frames)
