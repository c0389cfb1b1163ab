"""``--check functions``: compares the backward of each custom ``Function`` with finite differences.

The inputs are those that the script passed, in double precision if the function supports it. A directional derivative
of v . f(x) along u by central differences, (v . f(x + h u) - v . f(x - h u)) / 2h, is compared with u . backward(v).
The gradient for v is also compared with that for v in other memory layouts. If the script applies a function twice
before a backward, the two calls are checked together, too: Note [State outside of ctx]. A profile function, which is
set only for this check, captures the inputs while the script runs.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from types import FrameType
from typing import Any

import torch

from ...records import FunctionChecked, Unseen
from ...source.definitions import returns_at
from ...source.frames import CodeLocation, variables
from ...torch_internals import code_objects, private
from ...torch_internals.custom_calls import positional
from ..schedule.settings import Settings
from ..statistics.numbers import is_measurable
from ..tracker import Tracker
from ..tracker_context import TrackerContext
from .applied_functions import TOLERANCE, FunctionSample, check_pair, copy_call, prepare_call, run_call

#: Maximum number of first calls of each function whose inputs are kept.
MAX_FIRST_CALLS = 2
#: Maximum number of directions that are tried for each function.
MAX_TRIED_DIRECTIONS = 3
#: Maximum number of pairs of calls without a backward in between that are checked for each function.
MAX_PAIRS = 4
#: Interval between kept calls, as a factor of the largest absolute value so far: inputs with a smaller one do not
#: replace kept ones.
RANGE_INTERVAL_FACTOR = 1.25


@dataclass
class _LatestCall:
    """The latest call of a function: the number of backward calls before it, its node, and its copy."""

    backward_count: int
    node: weakref.ref[Any]
    sample: FunctionSample


class _KeptCalls:
    """Calls of one function at one line whose inputs are kept.

    These are the first calls, the call with the largest values, and a late call: a backward may be correct for some
    values only.
    """

    def __init__(self) -> None:
        """Start without calls."""
        self.calls, self.reach = 0, 0.0
        self._first_calls: list[FunctionSample] = []
        self._call_with_largest_input: FunctionSample | None = None
        self._last_kept_call: FunctionSample | None = None

    def offer(self, args: list[object], sample: Callable[[], FunctionSample]) -> None:
        """Count a call with the inputs `args`, and keep what `sample` returns if it is one of the calls to keep."""
        self.calls += 1
        reach = _largest_magnitude(args)
        farther, self.reach = reach > RANGE_INTERVAL_FACTOR * self.reach, max(self.reach, reach)
        if len(self._first_calls) < MAX_FIRST_CALLS:
            self._first_calls.append(sample())
        elif farther:
            self._call_with_largest_input = sample()
        elif self.calls & (self.calls - 1) == 0:  # the number of calls is a power of two
            self._last_kept_call = sample()

    @property
    def all(self) -> list[FunctionSample]:
        """The kept calls, the first ones first."""
        return [
            *self._first_calls,
            *(one for one in (self._call_with_largest_input, self._last_kept_call) if one is not None),
        ]


def _largest_magnitude(args: list[Any]) -> float:
    """Return the largest finite absolute value of the inputs."""
    with private.measuring():
        known = [a.detach().abs().amax().item() for a in args if _is_read(a)]
    return max((value for value in known if value - value == 0.0), default=0.0)


def _is_read(value: object) -> bool:
    """Return whether `value` is a tensor whose values can be read."""
    return (
        private.is_plain(value)
        and is_measurable(value)
        and not private.is_unsafe_to_read(value)
        and not private.is_freed(value)
    )


class CustomFunctionCheck(Tracker):
    """Tracker that collects calls of custom functions, and checks them after the script has ended."""

    @classmethod
    def wanted(cls, settings: Settings) -> bool:
        """Return whether the check was requested by ``--check functions``."""
        return "functions" in settings.checks

    def __init__(self, context: TrackerContext) -> None:
        """Start without calls; the profile function is set when observing begins."""
        self._context, self._modules, self._frames = context, context.modules, context.frames
        self._samples: dict[tuple[object, Any], _KeptCalls] = {}
        #: By function: the pairs of places at which it was applied twice before a backward, each with both calls; and
        #: its latest call.
        self._pairs_without_backward: dict[Any, dict[object, tuple[FunctionSample, FunctionSample]]] = {}
        self._latest_calls: dict[object, _LatestCall] = {}
        self._backward_count = 0
        self._is_profiling = False
        self._skipped: list[str] = []
        self._found: list[FunctionChecked] = []
        context.restorers.append(self._stop_profiling)

    def observing_begins(self) -> None:
        """Set the profile function, unless the script has one."""
        if sys.getprofile() is None:
            sys.setprofile(self._profile_event)
            self._is_profiling = True
        else:
            self._skipped.append("a profiler is running, so custom functions were not seen")

    def _stop_profiling(self) -> None:
        """Remove our profile function, if it is set."""
        if self._is_profiling:
            sys.setprofile(None)
            self._is_profiling = False

    def _profile_event(self, frame: FrameType, event: str, arg: object) -> None:
        """Keep the inputs if a custom function's ``forward`` or ``setup_context`` is called, and count backward calls.

        The profile function that Python calls for every call and return. Errors do not reach the script.
        """
        code = frame.f_code
        if event != "call" or code.co_name not in ("forward", "setup_context"):
            if code is code_objects.ENGINE_CALL:
                self._backward_count += 1
            return
        if not code.co_argcount:
            return
        local = variables(frame)
        ctx = local.get(code.co_varnames[0])
        if not isinstance(ctx, torch.autograd.function.BackwardCFunction):
            return
        if code.co_name == "setup_context":
            args = list(local.get(code.co_varnames[1]) or ())
        else:
            args = positional(code, local)[1:]
        function = ctx._forward_cls
        spot = self._frames.spot(frame.f_back)
        known = self._samples.get((function, spot))
        if known is None:
            if len(self._samples) >= 100:
                return
            known = self._samples[function, spot] = _KeptCalls()

        def sample() -> FunctionSample:
            """Return a copy of the call: its inputs, cloned, its line and the running module call."""
            stack = self._modules.stack
            where = stack[-1] if stack else None
            return copy_call(FunctionSample(function, args, list(ctx.needs_input_grad), spot, where))

        try:
            known.offer(args, sample)
            self._keep_pair(ctx, spot, sample)
        except Exception as error:  # it would propagate into the script
            self._context.events.fault(self, error)

    def _keep_pair(self, ctx: Any, spot: CodeLocation | None, sample: Callable[[], FunctionSample]) -> None:
        """Keep a call, and the previous one of the function, if no backward call was made between the two.

        The node of the previous call must be alive: without it, as with gradient mode off, no backward can follow.
        """
        function = ctx._forward_cls
        before, pairs = self._latest_calls.get(function), self._pairs_without_backward.setdefault(function, {})
        if len(pairs) >= MAX_PAIRS:
            return
        now = None
        if before is not None and before.backward_count == self._backward_count and before.node() is not None:
            if (before.sample.spot, spot) in pairs:
                return
            now = sample()
            pairs[before.sample.spot, spot] = before.sample, now
        self._latest_calls[function] = _LatestCall(self._backward_count, weakref.ref(ctx), now or sample())

    def ended(self) -> None:
        """At the end of the run: check the gradients of the collected calls of custom functions, and record wrong
        ones.
        """
        second_order = self._context.calls.has_second_order
        for known in self._samples.values():
            for sample in known.all:
                with torch.random.fork_rng(devices=[]), torch.enable_grad():
                    result = self._check(sample, second_order)
                if result is not None:
                    self._found.append(result)
                    break
        wrong = {one.name for one in self._found}
        for function, pairs in self._pairs_without_backward.items():
            for first, second in pairs.values():
                if function.__name__ in wrong:
                    break
                self._found += check_pair(first, second, self._context)
                wrong |= {one.name for one in self._found}
        self._pairs_without_backward.clear()
        self._latest_calls.clear()

    def records(self) -> tuple[FunctionChecked, ...]:
        """Return a record of each custom function whose backward is wrong."""
        return tuple(self._found)

    def unseen(self) -> list[Unseen]:
        """Return the functions that could not be checked, and why."""
        return [Unseen("custom function", 1, f"not checked: {reason}") for reason in self._skipped]

    def _check(self, sample: FunctionSample, second_order: bool) -> FunctionChecked | None:
        """Compare the backward of a kept call with finite differences, in float64 or else in float32.

        :param second_order: check the second derivative, too.
        :returns: a record of the first mismatch; ``None`` if there is none, or if the function cannot be called again.
        """
        name = sample.function.__name__
        for dtype in (torch.float64, torch.float32):
            try:
                wrong = (
                    _compare_derivatives(sample, dtype)
                    or (second_order and _compare_derivatives(sample, dtype, second=True))
                    or None
                )
            except Exception as error:  # it rejects doubles, or these inputs a second time
                reason = f"{name}: {type(error).__name__}: {error}"[:300]
                continue
            if wrong is None:
                return None
            return FunctionChecked(
                name,
                self._modules.place_of(sample.where),
                self._frames.site(sample.spot),
                returns_at(sample.function),
                *wrong,
            )
        self._skipped.append(reason)
        return None


def _compare_derivatives(
    sample: FunctionSample, dtype: torch.dtype, second: bool = False
) -> tuple[str, int, float, float, str] | None:
    """Compare a call's backward, or its second derivative, with central differences in random directions.

    :returns: the first mismatch: (what was checked, index of the input, analytic value, numeric value, reason);
        ``None`` if there is none, or if the function is random.
    """
    generator = torch.Generator().manual_seed(0)

    def random(like: torch.Tensor) -> torch.Tensor:
        """Return normal random numbers of the shape, dtype and device of `like`, from a generator of our own."""
        return torch.randn(like.shape, generator=generator, dtype=torch.float64).to(like.dtype).to(like.device)

    args, inputs = prepare_call(sample, dtype)
    if not inputs:
        return None
    leaves, outs = run_call(sample, args, inputs)
    again = run_call(sample, args, inputs)[1]
    if not outs or any(not torch.equal(a, b) for a, b in zip(outs, again, strict=True)):
        return None  # random: two calls cannot be compared
    v = [random(o) for o in outs]
    weights = [random(x) for x in leaves]

    def value(moved: list[object]) -> torch.Tensor | int:
        """Return the number to differentiate, at the arguments `moved`: v . f, or with `second` the gradient's weighted
        sum.
        """
        xs, ys = run_call(sample, moved, inputs)
        if not second:
            return sum((w * y.detach()).sum() for w, y in zip(v, ys, strict=True))
        gs = torch.autograd.grad(ys, xs, v, allow_unused=True)
        return sum((w * g).sum() for w, g in zip(weights, gs, strict=True) if g is not None)

    if second:
        firsts = torch.autograd.grad(outs, leaves, v, create_graph=True, allow_unused=True)
        total = sum((w * g).sum() for w, g in zip(weights, firsts, strict=True) if g is not None)
        gradients: Any = [None] * len(leaves)  # the result if the backward leaves the graph
        if isinstance(total, torch.Tensor) and total.requires_grad:
            gradients = torch.autograd.grad(total, leaves, allow_unused=True)
    else:
        gradients = torch.autograd.grad(outs, leaves, v, allow_unused=True)
    what = "second derivative" if second else "gradient"
    for at, (i, x, g) in enumerate(zip(inputs, leaves, gradients, strict=True)):
        h = (1e-6 if dtype == torch.float64 else 1e-2) * max(1.0, float(x.detach().abs().max()) if x.numel() else 1.0)
        misses, seen = 0, (0.0, 0.0)
        pairs: list[tuple[float, float]] = []
        for _ in range(MAX_TRIED_DIRECTIONS):
            u = random(x)
            up, down = list(args), list(args)
            up[i], down[i] = x.detach() + h * u, x.detach() - h * u
            numeric = float((value(up) - value(down)) / (2 * h))
            analytic = float((g.detach() * u).sum()) if g is not None else 0.0
            size = max(abs(numeric), abs(analytic))
            pairs.append((analytic, numeric))
            if abs(numeric - analytic) > TOLERANCE[dtype] * size and size > 1e-8:
                misses, seen = misses + 1, (analytic, numeric)
        if misses >= 2:
            return what, i, *seen, "" if second else _describe_error(sample, args, inputs, at, v, pairs)
    return None if second else _compare_layouts(sample, args, inputs, v, dtype)


def _compare_layouts(
    sample: FunctionSample, args: list[object], inputs: list[int], v: list[object], dtype: torch.dtype
) -> tuple[str, int, float, float, str] | None:
    """Return a mismatch if the backward gives another gradient for the same values in another memory layout.

    Autograd passes on slices (``cat``), transposed tensors, and expanded tensors (``sum``) as they are.
    """

    def gradients(given: list[object]) -> Any:
        """Return the gradients of the inputs for the output gradients `given`."""
        leaves, outs = run_call(sample, args, inputs)
        return torch.autograd.grad(outs, leaves, given, allow_unused=True)

    for how, lay in _LAYOUTS.items():
        given = [lay(x) for x in v]
        if all(x.is_contiguous() for x in given):
            continue
        plain = gradients([x.contiguous() for x in given])
        for i, a, b in zip(inputs, gradients(given), plain, strict=True):
            if a is None or b is None:
                continue
            apart = (a - b).abs()
            if bool((apart > TOLERANCE[dtype] * b.abs().max().clamp(min=1e-8)).any()):
                at = int(apart.argmax())
                why = f"it reads grad_output as if it were contiguous: for {how} it gives another gradient"
                return "gradient", i, float(a.flatten()[at]), float(b.flatten()[at]), why
    return None


def _as_every_second_element(x: torch.Tensor) -> torch.Tensor:
    """Return the values of `x` as a strided view with other elements in between."""
    return torch.stack([x, torch.full_like(x, 7.0)], -1).flatten(-2)[..., ::2] if x.dim() else x


def _as_slice_of_wider(x: torch.Tensor) -> torch.Tensor:
    """Return the values of `x` as a slice of a tensor with twice as many columns."""
    return torch.cat([x, torch.full_like(x, 7.0)], -1)[..., : x.shape[-1]] if x.dim() else x


#: Functions that return the same values in another memory layout, as other operations produce it.
_LAYOUTS = {
    "a slice of a wider tensor (as cat gives it)": _as_slice_of_wider,
    "every second element of a tensor": _as_every_second_element,
    "a transposed tensor": lambda x: x.transpose(0, -1).contiguous().transpose(0, -1) if x.dim() > 1 else x,
    "an expanded tensor (as sum gives it)": lambda x: torch.ones_like(x[:1]).expand_as(x) if x.dim() else x,
}


def _describe_error(
    sample: FunctionSample,
    args: list[object],
    inputs: list[int],
    at: int,
    v: list[torch.Tensor],
    pairs: list[tuple[float, float]],
) -> str:
    """Return a description of how the backward is wrong, if it follows a known pattern; otherwise an empty string.

    :param at: the position among `inputs` of the input with the wrong gradient.
    :param v: the gradients of the outputs; `pairs`: analytic and numeric derivative in each direction.
    """
    leaves, outs = run_call(sample, args, inputs)
    once = torch.autograd.grad(outs, leaves, v, allow_unused=True)[at]
    leaves, outs = run_call(sample, args, inputs)
    twice = torch.autograd.grad(outs, leaves, [2 * x for x in v], allow_unused=True)[at]
    if once is None:
        return "it returns None for an input that the result depends on"
    if twice is not None and torch.equal(once, twice) and bool(once.any()):
        return "it does not depend on grad_output"
    if all(numeric == 0.0 for _, numeric in pairs):
        return "the forward is flat there: a straight-through estimate"
    if any(numeric == 0.0 for _, numeric in pairs):
        return ""
    ratios = [analytic / numeric for analytic, numeric in pairs]
    if max(ratios) - min(ratios) > 1e-3 * abs(ratios[0]) or not ratios[0]:
        return ""
    if ratios[0] < 0:
        times = "" if abs(ratios[0] + 1) < 1e-3 else f", times {-ratios[0]:.3g}"
        return f"it is the true gradient with its sign reversed{times}"
    return f"it is the true gradient times {ratios[0]:.3g}"
