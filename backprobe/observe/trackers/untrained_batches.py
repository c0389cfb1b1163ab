"""Detects batches that train nothing and change the running statistics of layers that are trained on other data.

Note [Batches that train nothing]: a layer in training mode updates its running statistics with every batch, also under
``no_grad``. In recorded steps, the statistics before and after a call of a layer give the mean and variance of its
batch. Batches with gradient mode on are kept apart from the others. Whether the others did harm is seen from the
running statistics, in calls in evaluation mode and when the script ends. A monitor that runs every few steps is hardly
ever in a recorded step. But there are more batches than usual before that step of the optimizer, and the next time is
inspected closely.
"""

from __future__ import annotations

import sys
import weakref
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from types import FrameType
from typing import Any, NamedTuple

import torch
from torch import nn

from ...records import Site, UntrainedBatches
from ...source.calls import calls_of_method
from ...source.frames import CodeLocation
from ...source.grad_switches import is_in_evaluation
from ...source.roots import ModuleCallRef
from ...source.sites import is_before
from ...torch_internals import private
from ...torch_internals.async_scalars import Later, capturing, fetch
from ...torch_internals.references import IdentityMap
from ..schedule.budget import StepRoom
from ..tracker import Tracker
from ..tracker_context import TrackerContext
from .buffers import NORMS, share_of_far_channels

#: Most layers that are followed, and of one outermost module: the first ones see most of how data differ.
MAX_LAYERS, MAX_LAYERS_OF_MODEL = 6, 2
#: Most channels of a layer that is followed.
MAX_CHANNELS = 65536
#: Maximum number of batches of each kind that are kept: the latest.
MAX_BATCHES = 8
#: Most optimizers whose steps are followed.
MAX_OPTIMIZERS = 16
#: Maximum number of steps before the expected next turn of a monitor that are inspected closely.
MAX_STEPS_BEFORE_EXPECTED = 2
#: Maximum number of turns that are awaited so.
MAX_LOOKS = 4
#: Most looks at the running statistics in evaluation mode of one layer, after each of which the next one has to be
#: another step.
MAX_EVALUATIONS = 200
#: Names of code objects that are a part of the function around them.
COMPREHENSIONS = ("<genexpr>", "<listcomp>", "<dictcomp>")

#: The mean and variance of each channel.
_Moments = tuple[torch.Tensor, torch.Tensor]


class _Statistics(NamedTuple):
    """Copies of the running statistics, and the version of the number of batches that they belong to."""

    mean: torch.Tensor
    var: torch.Tensor
    version: int


@dataclass
class _Layer:
    """A normalisation layer with running statistics.

    :ivar last: its statistics after the last observed call.
    :ivar trained, untrained: its latest batches with gradient mode on, and with gradient mode off.
    :ivar running: its running statistics, if they met untrained batches: the module may be gone when the script ends.
    :ivar apart: the share of channels of untrained batches, and of the running statistics, that are far from those of
        trained batches when the script ends.
    :ivar first_step: the first step with an untrained batch; ``turns``: how often such batches came between trained
        ones. ``is_interrupted``: an untrained batch was seen, and no trained one since.
    :ivar lines: the lines that called the outermost module for an untrained batch.
    :ivar share: the largest share of channels whose running statistics were far from those of trained batches, in a
        call in evaluation mode; ``evaluations``: their number.
    """

    module: weakref.ref[nn.Module]
    where: ModuleCallRef
    class_name: str
    eps: float
    last: _Statistics | None = None
    trained: deque[_Moments] = field(default_factory=lambda: deque(maxlen=MAX_BATCHES))
    untrained: deque[_Moments] = field(default_factory=lambda: deque(maxlen=MAX_BATCHES))
    running: _Moments | None = None
    apart: list[torch.Tensor] = field(default_factory=list)
    is_interrupted: bool = False
    first_step: int = -1
    turns: int = 0
    lines: dict[CodeLocation, None] = field(default_factory=dict)
    share: float = 0.0
    evaluations: int = 0
    last_evaluation: int = -1

    def note_share(self, value: float) -> None:
        """Keep the largest share of channels whose running statistics were far from those of trained batches."""
        self.share = max(self.share, value)


@dataclass
class _BatchCounts:
    """The number of batches between two steps of an optimizer.

    :ivar total: of all followed layers, at its last step; ``least``: the least increase from one step to the next.
    :ivar extras: how often there were more; ``last_extra``: the last step before which there were.
    """

    ref: weakref.ref[Any]
    layer_count: int
    total: int
    least: int = sys.maxsize
    extras: int = 0
    last_extra: int = -1


class UntrainedBatchTracker(Tracker):
    """Tracker of batches without gradients that change running statistics: Note [Batches that train nothing]."""

    def __init__(self, context: TrackerContext) -> None:
        """Start without layers; register hooks around optimizer steps, and limit the fast path before expected turns
        of a monitor.
        """
        self._context, self._frames = context, context.frames
        self._layers: list[_Layer] = []
        self._known: IdentityMap[_Layer | None] = IdentityMap()
        self._counts: dict[int, _BatchCounts] = {}
        #: The line that calls the running outermost module.
        self._caller: CodeLocation | None = None
        self._expected_step, self._looks_left, self._is_inspecting = sys.maxsize, MAX_LOOKS, False
        self._later = Later()
        self._hooks = context.step_hooks(self, self._before_step, self._after_step)
        context.fast_path_limits.append(self._steps_until_expected)

    def observing_begins(self) -> None:
        """Attach the hooks around optimizer steps."""
        self._hooks.attach()

    # Steps of optimizers: in fast-path steps, too

    def _before_step(self, optimizer: object) -> None:
        """Compare the number of batches since the optimizer's last step with the least so far."""
        if not self._layers:
            return
        total = 0
        for layer in self._layers:
            module: Any = layer.module()
            count = module.num_batches_tracked if module is not None else None
            total += count._version if count is not None else 0
        one = self._counts.get(id(optimizer))
        if one is None or one.ref() is not optimizer or one.layer_count != len(self._layers):
            if one is not None or len(self._counts) < MAX_OPTIMIZERS:
                self._counts[id(optimizer)] = _BatchCounts(weakref.ref(optimizer), len(self._layers), total)
            return
        more, one.total = total - one.total, total
        if more > one.least:
            self._note_extra(one)
        elif more > 0:
            one.least = more

    def _note_extra(self, one: _BatchCounts) -> None:
        """Expect the next turn of a monitor after as many steps as passed since the last one."""
        step = self._context.steps.index
        if self._looks_left and 0 <= one.last_extra < step:
            self._expected_step, self._is_inspecting = 2 * step - one.last_extra, False
        one.extras += 1
        one.last_extra = step

    def _after_step(self, optimizer: object) -> None:
        """Request close inspection of the steps up to the expected turn of a monitor, if it is near."""
        step = self._context.steps.index
        if step < self._expected_step - MAX_STEPS_BEFORE_EXPECTED:
            return
        if step > self._expected_step:
            self._expected_step, self._is_inspecting = sys.maxsize, False
        elif self._looks_left and not self._is_inspecting:
            self._looks_left -= 1
            self._is_inspecting = True
            self._context.inspect_until(self._expected_step + 1)

    def _steps_until_expected(self, step: int, room: StepRoom) -> int:
        """Return how many steps from `step` on may take the fast path: until shortly before an expected turn."""
        if not self._looks_left or step > self._expected_step:
            return sys.maxsize
        return max(0, self._expected_step - MAX_STEPS_BEFORE_EXPECTED - step)

    # Calls of modules

    def forward_begins(self) -> None:
        """Note the line that calls an outermost module with gradient mode off."""
        self._caller = None if torch.is_grad_enabled() else self._line_of(sys._getframe())

    def _line_of(self, frame: FrameType | None) -> CodeLocation | None:
        """Return the user's line at or above `frame`; for a line in a comprehension, that of the function around it."""
        frame = self._frames.first(frame)
        while frame is not None and frame.f_code.co_name in COMPREHENSIONS:
            frame = self._frames.first(frame.f_back)
        return self._frames.spot(frame)

    def module_returned(self, module: nn.Module, where: ModuleCallRef, output: object) -> None:
        """Note the batch of a call of a followed layer, or follow a layer that is called for the first time."""
        if not module._buffers or not isinstance(module, NORMS):
            return
        layer = self._known.get(module)
        if layer is None:
            if module in self._known:
                return
            layer = self._known[module] = self._follow(module, where)
        if layer is None or capturing():
            return
        trains = torch.is_grad_enabled()
        with private.disable_function_modes(), private.hide_ops(), torch.no_grad():
            if module.training:
                self._note_batch(layer, module, trains)
            else:
                self._note_evaluation(layer, module)

    def _follow(self, module: Any, where: ModuleCallRef) -> _Layer | None:
        """Return a layer to follow; ``None`` if it has no running statistics, or enough layers are followed."""
        same_model = sum(layer.where.root is where.root for layer in self._layers)
        if len(self._layers) >= MAX_LAYERS or same_model >= MAX_LAYERS_OF_MODEL or not module.training:
            return None
        mean, var = module.running_mean, module.running_var
        if module.num_batches_tracked is None or module.momentum == 0.0:
            return None
        tensors = mean, var, module.num_batches_tracked
        if (
            not all(private.is_readable(one) and not one.is_inference() for one in tensors)
            or mean.numel() > MAX_CHANNELS
        ):
            return None
        layer = _Layer(weakref.ref(module), where, type(module).__name__, float(module.eps))
        self._layers.append(layer)
        return layer

    def _note_batch(self, layer: _Layer, module: Any, trains: bool) -> None:
        """Note the batch of a call in training mode, if the statistics before it are known.

        :param trains: gradient mode is on.
        """
        mean, var, count = module.running_mean, module.running_var, module.num_batches_tracked
        if not (private.is_readable(mean) and private.is_readable(var)):
            return
        before, version = layer.last, count._version
        layer.last = now = _Statistics(mean.clone(), var.clone(), version)
        if before is None or version != before.version + 1 or before.mean.shape != now.mean.shape:
            batch: _Moments | None = None
        else:
            share = module.momentum if module.momentum is not None else 1.0 / max(version, 2)
            mean_of_batch = before.mean + (now.mean - before.mean) / share
            var_of_batch = before.var + (now.var - before.var) / share
            batch = mean_of_batch, var_of_batch
        if trains:
            if layer.is_interrupted and layer.trained:
                layer.turns += 1
            layer.is_interrupted = False
            layer.trained.extend([batch] if batch is not None else [])
            return
        layer.is_interrupted = True
        layer.running = mean, var
        layer.first_step = self._context.steps.index if layer.first_step < 0 else layer.first_step
        layer.untrained.extend([batch] if batch is not None else [])
        line = self._caller or self._line_of(sys._getframe())
        if line is not None and len(layer.lines) < MAX_BATCHES:
            layer.lines[line] = None

    def _note_evaluation(self, layer: _Layer, module: Any) -> None:
        """Compare the running statistics with those of trained batches, once in a step."""
        step = self._context.steps.index
        if layer.evaluations >= MAX_EVALUATIONS or step == layer.last_evaluation or not layer.untrained:
            return
        layer.last_evaluation = step
        layer.evaluations += 1
        if not layer.trained:
            return
        share = _far_share((module.running_mean, module.running_var), _joint(layer.trained), layer.eps)
        if share.is_cpu:
            layer.note_share(float(share))
        else:
            self._later.add(share, layer.note_share)

    # What is known

    def ended(self) -> None:
        """Compare the running statistics for the last time, and the batches of both kinds."""
        with private.disable_function_modes(), private.hide_ops(), torch.no_grad():
            self._later.flush()
            for layer in self._layers:
                if layer.running is None or not layer.trained or not layer.untrained or capturing():
                    continue
                trained = _joint(layer.trained)
                layer.apart = [_far_share(one, trained, layer.eps) for one in (_joint(layer.untrained), layer.running)]

    def records(self) -> Iterator[UntrainedBatches]:
        """Yield a record for each layer whose untrained batches are known, with the lines that call the model."""
        extras = max((one.extras for one in self._counts.values()), default=0)
        for layer in self._layers:
            if not layer.apart:
                continue
            with private.disable_function_modes(), private.hide_ops(), torch.no_grad():
                apart, at_end = fetch(layer.apart)
            called = next((site for spot in layer.lines if (site := self._frames.site(spot)) is not None), None)
            name = self._context.modules.full_name(layer.where.root, layer.where.path or "")
            yield UntrainedBatches(
                name,
                layer.class_name,
                max(layer.turns, extras),
                layer.first_step,
                apart,
                max(layer.share, at_end),
                bool(layer.evaluations),
                called,
                self._train_call(called),
            )

    def _train_call(self, called: Site | None) -> Site | None:
        """Return the last call of ``train()`` before the line that calls the model, in a function that only evaluates.

        In a function that trains, too, the call of ``train()`` is meant for the training.
        """
        if called is None or not is_in_evaluation(called, self._frames.users_files()):
            return None
        calls = [one.site for one in calls_of_method(self._frames, "train")]
        return next((site for site in reversed(calls) if is_before(site, called)), None)


def _joint(batches: Iterable[_Moments]) -> _Moments:
    """Return the average of the means and the variances of batches."""
    means, variances = zip(*batches, strict=True)
    return torch.stack(means).mean(0), torch.stack(variances).mean(0)


def _far_share(one: _Moments, other: _Moments, eps: float) -> torch.Tensor:
    """Return the share of channels of `one` that are far from those of `other`.

    The layer adds `eps` to variances: differences of that size change nothing.
    """
    (mean, var), (other_mean, other_var) = one, other
    return share_of_far_channels((mean, var.clamp_min(0) + eps), (other_mean, other_var.clamp_min(0) + eps))
