"""Calls of custom functions: a copy of the inputs, to call the function again and to compare gradients.

Note [State outside of ctx]: a forward that keeps a value on its class, on a module or in a global variable overwrites
it when the function is applied again. If a backward of the first call follows, it reads the value of the second. The
check calls the function again on the inputs of both calls: the gradient of the first must not depend on the second.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch

from ...records import FunctionChecked
from ...source.definitions import returns_at
from ...source.frames import CodeLocation
from ...source.function_state import state_shared, state_written
from ...source.roots import ModuleCallRef
from ..tracker_context import TrackerContext

#: Relative error above which two derivatives are reported as different, by precision.
TOLERANCE = {torch.float64: 1e-4, torch.float32: 3e-2}


@dataclass
class FunctionSample:
    """A stored call of a custom function, with copies of its inputs."""

    function: Any
    args: list[object]
    needs: list[bool]
    spot: CodeLocation | None
    where: ModuleCallRef | None


def copy_call(sample: FunctionSample) -> FunctionSample:
    """Return a call of a custom function with copies of its tensors."""
    with torch.no_grad():
        kept = [a.detach().clone() if isinstance(a, torch.Tensor) else a for a in sample.args]
    return replace(sample, args=kept)


def prepare_call(sample: FunctionSample, dtype: torch.dtype) -> tuple[list[Any], list[int]]:
    """Return a call's arguments with float tensors in `dtype`, and the positions of those that need a gradient."""
    args: list[Any] = []
    inputs = []
    for i, a in enumerate(sample.args):
        if isinstance(a, torch.Tensor) and a.is_floating_point():
            a = a.to(dtype) if a.dtype != dtype else a.clone()
            if i < len(sample.needs) and sample.needs[i]:
                inputs.append(i)
        args.append(a)
    return args, inputs


def run_call(sample: FunctionSample, args: list[Any], inputs: list[int]) -> tuple[list[Any], list[torch.Tensor]]:
    """Call the function of `sample` on `args`, with fresh leaves at the positions `inputs`.

    :returns: the leaves, and the floating-point outputs that require grad.
    """
    fresh = [a.detach().clone().requires_grad_() if i in inputs else a for i, a in enumerate(args)]
    out = sample.function.apply(*[f * 1 if i in inputs else f for i, f in enumerate(fresh)])
    outs = [o for o in (out if isinstance(out, tuple) else (out,)) if isinstance(o, torch.Tensor)]
    return [fresh[i] for i in inputs], [o for o in outs if o.is_floating_point() and o.requires_grad]


def _gradient_changed_by(
    first: FunctionSample, second: FunctionSample, dtype: torch.dtype
) -> tuple[int, float, float] | None:
    """Compare the gradient of `first` alone with its gradient if `second` is applied before the backward.

    :returns: the index of the input whose gradient differs most visibly, the changed element, and its value without the
        second call; ``None`` if no gradient changes.
    """
    args, inputs = prepare_call(first, dtype)
    others, other_inputs = prepare_call(second, dtype)
    if not inputs:
        return None

    def gradients(both: bool) -> tuple[list[torch.Tensor], Any]:
        """Return the outputs of the first call, and its gradients; `both`: the second call is applied before the
        backward.
        """
        leaves, outs = run_call(first, args, inputs)
        more = run_call(second, others, other_inputs) if both else ([], [])
        given = [torch.ones_like(o) for o in (*outs, *more[1])]
        found = torch.autograd.grad([*outs, *more[1]], [*leaves, *more[0]], given, allow_unused=True)
        return [o.detach() for o in outs], found[: len(leaves)]

    runs = [gradients(both=False), gradients(both=True), gradients(both=False)]
    for outs, _ in runs[1:]:
        if not outs or not all(map(torch.equal, outs, runs[0][0])):
            return None  # the result itself changes from call to call
    for i, alone, joint, again in zip(inputs, *(found for _, found in runs), strict=True):
        if alone is None or joint is None or not torch.equal(alone, again):
            continue
        apart = (alone - joint).abs()
        if bool((apart > TOLERANCE[dtype] * alone.abs().max().clamp(min=1e-8)).any()):
            at = int(apart.argmax())
            return i, float(joint.flatten()[at]), float(alone.flatten()[at])
    return None


def check_pair(first: FunctionSample, second: FunctionSample, context: TrackerContext) -> list[FunctionChecked]:
    """Return a record if a call gives another gradient when the function is applied again before its backward.

    Note [State outside of ctx].
    """
    for dtype in (torch.float64, torch.float32):
        try:
            with torch.random.fork_rng(devices=[]), torch.enable_grad():
                wrong = _gradient_changed_by(first, second, dtype)
        except Exception:  # it rejects doubles, or these inputs a second time
            continue
        if wrong is None:
            return []
        function = first.function
        return [
            FunctionChecked(
                function.__name__,
                context.modules.place_of(first.where),
                context.frames.site(first.spot),
                returns_at(function),
                *("gradient", *wrong, "what the forward kept is overwritten when it is applied again"),
                again=context.frames.site(second.spot),
                state=state_shared(function) or state_written(function),
            )
        ]
    return []
