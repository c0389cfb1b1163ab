"""Detects copies of a model whose weights are averaged while their running statistics are left behind."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

import torch
from torch import nn

from ... import thresholds
from ...records import StaleStatistics, Step
from ...source.control_flow import loop_of
from ...source.frames import CodeLocation
from ...source.roots import modules_in_sight
from ...torch_internals import private
from ...torch_internals.async_scalars import fetch
from ...torch_internals.references import IdentityMap
from ..schedule.observed_steps import ends_observed_row, is_observed_step
from ..tracker import Tracker
from ..tracker_context import TrackerContext
from .buffers import NORMS, share_of_far_channels

#: The most modules that are followed, and the most places that write to parameters and are searched for their module.
MAX_COPIES, MAX_PLACES = 8, 40


@dataclass
class _Copy:
    """A module whose parameters something else than an optimizer writes.

    :ivar norms: its layers with running statistics, by path; ``twins``: those of a trained module with the same layers.
    :ivar state: version counters of its statistics when it was found; ``weights``, ``twin_state``: those of its weights
        and of the twin's statistics at the last look.
    :ivar updates, moves: at how many looks the weights had changed, and the statistics of the twin. ``writes``: the
        number of recorded steps in which ``spot`` wrote; ``written``: the last of them.
    :ivar stale: its statistics have not changed. ``evaluates``: all its layers were in eval mode at the last look.
    :ivar apart: the share of channels whose statistics are far from the twin's, for the layer with most of them.
    """

    module: weakref.ref[nn.Module]
    name: str
    spot: CodeLocation | None
    norms: dict[str, weakref.ref[nn.Module]]
    state: tuple[object, ...]
    twins: dict[str, weakref.ref[nn.Module]] = field(default_factory=dict)
    weights: int = -1
    twin_state: int = -1
    updates: int = 0
    written: int = -1
    writes: int = 0
    moves: int = 0
    stale: bool = True
    evaluates: bool = False
    called: bool = False
    apart: torch.Tensor | None = None


class AveragedCopyTracker(Tracker):
    """Tracker that compares copies of models, whose weights are averages, with the models that are trained."""

    def __init__(self, context: TrackerContext) -> None:
        """Start without copies."""
        self._context, self._modules, self._frames = context, context.modules, context.frames
        self._copies: list[_Copy] = []
        #: Parameters whose module was searched for, and the places that wrote to them.
        self._searched_parameters: IdentityMap[bool] = IdentityMap(private.tensor_ref)
        self._writing_lines: set[CodeLocation | None] = set()

    def wrote(self, func: object, written: list[torch.Tensor], seq: int, frame: FrameType) -> None:
        """Follow the module whose parameters a line writes outside of optimizers, and count later writes of that
        line.
        """
        if self._copies and written:
            self._count_update(self._frames.spot(frame))
        if len(self._copies) >= MAX_COPIES or len(self._writing_lines) >= MAX_PLACES or not written:
            return
        first = written[0]
        is_part_of_graph = type(first) is torch.Tensor and first.requires_grad
        if type(first) not in (nn.Parameter, torch.Tensor) or is_part_of_graph or first in self._searched_parameters:
            return
        self._searched_parameters[first] = True
        spot = self._frames.spot(frame)
        if spot not in self._writing_lines and not private.is_unsafe_to_read(first):
            self._writing_lines.add(spot)
            with private.disable_function_modes():
                self._find_module(first, spot, frame)

    def _count_update(self, spot: CodeLocation | None) -> None:
        """Count a step in which `spot` wrote: a write to ``p.data`` leaves the version counter of ``p`` alone."""
        step = self._context.steps.index
        for one in self._copies:
            if one.spot == spot and one.written != step:
                one.written = step
                one.writes += 1

    def _find_module(self, tensor: torch.Tensor, spot: CodeLocation | None, frame: FrameType) -> None:
        """Follow the outermost module in sight with a parameter that is `tensor`, detached or not.

        Only a module with running statistics is followed.
        """
        address = tensor.data_ptr()
        found, size = None, 0
        for name, module in modules_in_sight(frame, self._frames):
            members = sum(1 for _ in module.modules())
            if members > size and any(_has_address(p, address) for p in module.parameters()):
                found, size = (name, module), members
        if found is None or any(one.module() is found[1] for one in self._copies):
            return
        norms = _norm_layers(found[1])
        if norms:
            self._copies.append(_Copy(weakref.ref(found[1]), found[0], spot, norms, _statistics_state(norms)))

    def step_ended(self, step: Step) -> None:
        """Compare the copies with the trained models after some of the steps."""
        if self._copies and is_observed_step(step.index):
            self._check_copies(ends_observed_row(step.index))

    def ended(self) -> None:
        """Compare the copies with the trained models for the last time."""
        self._check_copies(True)

    def _check_copies(self, compares: bool) -> None:
        """Check whether the weights of each copy and the statistics of its trained model changed while its own did not.

        :param compares: also compare the values of the statistics, channel by channel.
        """
        with private.disable_function_modes(), private.hide_ops(), torch.no_grad():
            for one in self._copies:
                module = one.module()
                if module is None or not one.stale:
                    continue
                if not one.twins:
                    one.twins = self._find_twin(one)
                    if not one.twins:
                        continue
                one.stale = _statistics_state(one.norms) == one.state
                weights = sum(p._version for p in module.parameters())
                moved = _batch_version_sum(one.twins)
                one.updates += weights != one.weights
                one.moves += moved != one.twin_state
                one.weights, one.twin_state = weights, moved
                one.evaluates = all(m is not None and not m.training for m in (ref() for ref in one.norms.values()))
                one.called = one.called or self._modules.was_called(module)
                if compares and one.stale:
                    one.apart = _far_share(one)

    def _find_twin(self, copy: _Copy) -> dict[str, weakref.ref[nn.Module]]:
        """Return, by path, the layers of a called module in train mode that has the same layers as `copy`; empty if
        there is none.
        """
        for _, model in self._modules.models():
            for module in (model, *model.children()):
                if module is not copy.module() and module.training and self._modules.was_called(module):
                    norms = _norm_layers(module)
                    if norms.keys() == copy.norms.keys():
                        return norms
        return {}

    def records(self) -> Iterator[StaleStatistics]:
        """Yield a record of each averaged copy whose running statistics were left behind and that evaluates or is
        called.
        """
        for one in self._copies:
            changes = min(max(one.updates, one.writes), one.moves)
            # A call in train mode would have changed the statistics.
            if (
                not one.stale
                or not (one.evaluates or one.called)
                or changes <= thresholds.AVERAGED_COPY_MIN_CHANGES
                or one.apart is None
            ):
                continue
            with private.disable_function_modes(), private.hide_ops(), torch.no_grad():
                (apart,) = fetch([one.apart])
            site = self._frames.site(one.spot)
            loop = loop_of(site) if site is not None else None
            if loop is not None and "parameters()" not in loop.text:
                loop = None
            yield StaleStatistics(one.name, tuple(one.norms), apart, one.called, site, loop)


def _has_address(parameter: torch.Tensor, address: int) -> bool:
    """Return whether the values of a parameter are at this address."""
    if type(parameter) is not nn.Parameter or parameter.layout is not torch.strided or parameter.is_meta:
        return False
    return bool(parameter.data_ptr() == address != 0)


def _norm_layers(module: nn.Module) -> dict[str, weakref.ref[nn.Module]]:
    """Return the layers with running statistics by path, without the level that wrappers add."""
    return {
        path.removeprefix("module."): weakref.ref(one)
        for path, one in module.named_modules()
        if isinstance(one, NORMS) and one.running_mean is not None
    }


def _statistics_state(norms: dict[str, weakref.ref[nn.Module]]) -> tuple[object, ...]:
    """Return id and version counter of each running mean and batch counter, to see later whether they were written."""
    found: list[object] = []
    for ref in norms.values():
        module: Any = ref()
        for name in ("running_mean", "num_batches_tracked"):
            buffer = getattr(module, name, None)
            found.append((id(buffer), buffer._version) if buffer is not None else None)
    return tuple(found)


def _batch_version_sum(norms: dict[str, weakref.ref[nn.Module]]) -> int:
    """Return the sum of the version counters of the numbers of batches."""
    modules: list[Any] = [ref() for ref in norms.values()]
    return sum(m.num_batches_tracked._version for m in modules if m is not None and m.num_batches_tracked is not None)


def _far_share(copy: _Copy) -> torch.Tensor | None:
    """Return the share of channels whose statistics are far from the twin's, for the layer with most of them."""
    shares = []
    for path, ref in copy.norms.items():
        mine: Any = ref()
        twin: Any = copy.twins[path]()
        if mine is None or twin is None or mine.running_mean is None or twin.running_mean is None:
            return None
        if private.is_unsafe_to_read(mine.running_mean) or mine.running_mean.shape != twin.running_mean.shape:
            return None
        if mine.running_mean.device != twin.running_mean.device:
            return None
        shares.append(
            share_of_far_channels((mine.running_mean, mine.running_var), (twin.running_mean, twin.running_var))
        )
    return torch.stack(shares).max()
