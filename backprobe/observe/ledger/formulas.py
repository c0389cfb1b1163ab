"""The updates of torch's optimizers as sums: a factor of the gradient, and momentum of earlier steps.

Note [Parts of a step]: every update here is ``factor * gradient + momentum``, element by element, if the state before
the step is given and the denominator that includes this gradient counts as part of the factor. An L2 penalty is added
to the gradient before that, so the same factor applies to it; decoupled weight decay is a part of its own. All is
computed in float64 from the state before the step and the gradient that the optimizer used.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from inspect import unwrap
from types import CodeType
from typing import Any, TypeAlias

import torch

from ...torch_internals import private

#: The precision in which optimizers compute some of their scalars.
SCALAR_EPS = torch.finfo(torch.float32).eps


@dataclass
class UpdateInputs:
    """The inputs of an update: rows of sampled elements, one row for each parameter.

    :ivar options: the numbers of the parameter group.
    :ivar grad: the gradient that counts: negated if the optimizer maximizes, and with an L2 penalty.
    :ivar step: the number of the step as a column. ``state``: by name, zeros for a parameter that has none yet.
    :ivar has_state: a column of 1 and 0: whether the parameter had a state.
    :ivar eps: the least relative precision of the computation. ``amplified``: by what factor rounding may grow.
    """

    options: Mapping[str, Any]
    grad: torch.Tensor
    step: torch.Tensor
    state: Mapping[str, torch.Tensor]
    has_state: torch.Tensor
    eps: float = 0.0
    amplified: torch.Tensor | float = 1.0


#: The factor of the gradient, and the momentum.
Update: TypeAlias = tuple[torch.Tensor, torch.Tensor]


@dataclass(frozen=True)
class Formula:
    """The update of an optimizer.

    :ivar state: names of state tensors with an element for each of the parameter; ``scalars``: names of state scalars
        other than ``step``, with their first values.
    :ivar is_linear: the update is proportional to the gradient.
    """

    update: Callable[[UpdateInputs], Update]
    state: tuple[str, ...]
    scalars: Mapping[str, float] = field(default_factory=dict)
    is_linear: bool = False


def _sgd(t: UpdateInputs) -> Update:
    """Return the update of ``SGD`` from the state before the step, also with momentum and Nesterov."""
    rate, momentum = t.options["lr"], t.options["momentum"]
    # The first step takes the whole gradient into the buffer.
    taken = 1 - t.options["dampening"] * t.has_state
    if not momentum:
        return torch.full_like(t.grad, -rate), torch.zeros_like(t.grad)
    factor, kept = taken, momentum
    if t.options["nesterov"]:
        factor, kept = 1 + momentum * taken, momentum * momentum
    return (-rate * factor).expand_as(t.grad), -rate * kept * t.state["momentum_buffer"]


def _second_moment(t: UpdateInputs, beta: float, name: str = "exp_avg_sq") -> torch.Tensor:
    """Return the running mean of the squared gradient, updated with this step's gradient.

    :param beta: the weight of the old mean; `name`: of the state that holds it.
    """
    return beta * t.state[name] + (1 - beta) * t.grad.square()


def _corrections(t: UpdateInputs) -> tuple[torch.Tensor, torch.Tensor]:
    """Return Adam's bias corrections of the first and second moment, ``1 - beta ** step``."""
    (first, second), step = t.options["betas"], t.step
    second_correction = 1 - second**step
    if t.options.get("capturable") or t.options.get("fused"):  # the device computes them in float32
        t.eps, t.amplified = SCALAR_EPS, 1 / second_correction
    return 1 - first**step, second_correction


def _adam(t: UpdateInputs) -> Update:
    """Return what a step of ``Adam`` or ``AdamW`` adds to the parameters: the factor of the gradient, and the
    momentum.
    """
    beta, second = t.options["betas"]
    first_correction, second_correction = _corrections(t)
    moment = _second_moment(t, second)
    if t.options.get("amsgrad"):
        moment = torch.maximum(moment, t.state["max_exp_avg_sq"])
    scaled = -t.options["lr"] / first_correction / ((moment / second_correction).sqrt() + t.options["eps"])
    return (1 - beta) * scaled, beta * t.state["exp_avg"] * scaled


def _nadam(t: UpdateInputs) -> Update:
    """Return what a step of ``NAdam`` adds to the parameters: the factor of the gradient, and the momentum."""
    beta, second = t.options["betas"]
    _, correction = _corrections(t)
    t.eps = SCALAR_EPS  # of ``mu_product``
    rate, decay = t.options["lr"], t.options["momentum_decay"]
    mu = beta * (1 - 0.5 * 0.96 ** (t.step * decay))
    mu_next = beta * (1 - 0.5 * 0.96 ** ((t.step + 1) * decay))
    product = t.state["mu_product"] * mu
    root = (_second_moment(t, second) / correction).sqrt() + t.options["eps"]
    scaled = -rate * mu_next / (1 - product * mu_next) / root
    return (1 - beta) * scaled - rate * (1 - mu) / (1 - product) / root, beta * t.state["exp_avg"] * scaled


def _radam(t: UpdateInputs) -> Update:
    """Return what a step of ``RAdam`` adds to the parameters: the factor of the gradient, and the momentum."""
    beta, second = t.options["betas"]
    first_correction, second_correction = _corrections(t)
    longest = 2 / (1 - second) - 1
    length = longest - 2 * t.step * second**t.step / second_correction
    rectified = (length - 4) * (length - 2) * longest / ((longest - 4) * (longest - 2) * length)
    adapted = second_correction.sqrt() / (_second_moment(t, second).sqrt() + t.options["eps"])
    scaled = torch.where(length > 5, rectified.clamp_min(0).sqrt() * adapted, 1.0) * -t.options["lr"] / first_correction
    return (1 - beta) * scaled, beta * t.state["exp_avg"] * scaled


def _adamax(t: UpdateInputs) -> Update:
    """Return what a step of ``Adamax`` adds to the parameters: the factor of the gradient, and the momentum."""
    beta, second = t.options["betas"]
    first_correction, _ = _corrections(t)
    largest = torch.maximum(second * t.state["exp_inf"], t.grad.abs() + t.options["eps"])
    scaled = -t.options["lr"] / first_correction / largest
    return (1 - beta) * scaled, beta * t.state["exp_avg"] * scaled


def _rmsprop(t: UpdateInputs) -> Update:
    """Return what a step of ``RMSprop`` adds to the parameters: the factor of the gradient, and the momentum."""
    alpha, rate = t.options["alpha"], t.options["lr"]
    moment = _second_moment(t, alpha, "square_avg")
    if t.options["centered"]:
        mean = alpha * t.state["grad_avg"] + (1 - alpha) * t.grad
        variance = moment - mean.square()
        t.amplified = moment / variance  # the difference of two numbers of about the same size
        moment = variance
    factor = -rate / (moment.sqrt() + t.options["eps"])
    momentum = t.options["momentum"]
    carried = -rate * momentum * t.state["momentum_buffer"] if momentum > 0 else torch.zeros_like(t.grad)
    return factor, carried


def _adagrad(t: UpdateInputs) -> Update:
    """Return the update of ``Adagrad``."""
    rate = t.options["lr"] / (1 + (t.step - 1) * t.options["lr_decay"])
    factor = -rate / ((t.state["sum"] + t.grad.square()).sqrt() + t.options["eps"])
    return factor, torch.zeros_like(t.grad)


def _adadelta(t: UpdateInputs) -> Update:
    """Return the update of ``Adadelta``."""
    rho, eps = t.options["rho"], t.options["eps"]
    size = (_second_moment(t, rho, "square_avg") + eps).sqrt()
    return -t.options["lr"] * (t.state["acc_delta"] + eps).sqrt() / size, torch.zeros_like(t.grad)


_ADAM = Formula(_adam, ("exp_avg", "exp_avg_sq", "max_exp_avg_sq"))
FORMULAS: Mapping[type, Formula] = {
    torch.optim.SGD: Formula(_sgd, ("momentum_buffer",), is_linear=True),
    torch.optim.Adam: _ADAM,
    torch.optim.AdamW: _ADAM,
    torch.optim.NAdam: Formula(_nadam, ("exp_avg", "exp_avg_sq"), {"mu_product": 1.0}),
    torch.optim.RAdam: Formula(_radam, ("exp_avg", "exp_avg_sq")),
    torch.optim.Adamax: Formula(_adamax, ("exp_avg", "exp_inf")),
    torch.optim.RMSprop: Formula(_rmsprop, ("square_avg", "grad_avg", "momentum_buffer")),
    torch.optim.Adagrad: Formula(_adagrad, ("sum",)),
    torch.optim.Adadelta: Formula(_adadelta, ("square_avg", "acc_delta")),
}


def formula_of(optimizer: torch.optim.Optimizer) -> Formula | None:
    """Return the formula of an optimizer; ``None`` if its class is not known, or has a step of its own."""
    kind = type(optimizer)
    for base in kind.__mro__:
        if base in FORMULAS:
            return FORMULAS[base] if _code_of_step(kind) is _code_of_step(base) else None
    return None


def _code_of_step(kind: type) -> CodeType | None:
    """Return the code of the ``step`` method of an optimizer class; ``None`` if it has none."""
    return getattr(unwrap(kind.step), "__code__", None)  # type: ignore[attr-defined]


def options_of(optimizer: torch.optim.Optimizer, group: Mapping[str, object]) -> dict[str, object] | None:
    """Return the options of a parameter group as numbers; ``None`` if one cannot be read, or gradients are scaled."""
    if group.get("differentiable") or getattr(optimizer, "grad_scale", None) is not None:
        return None
    options: dict[str, object] = {}
    for name, value in group.items():
        if name == "params":
            continue
        if isinstance(value, tuple):
            found: Any = tuple(map(read_number, value))
            if None in found:
                return None
        else:
            found = read_number(value)
            if found is None and isinstance(value, torch.Tensor):
                return None
        options[name] = found
    return options


def read_number(value: object) -> float | None:
    """Return a number that may be in a tensor; ``None`` if it is none, or its tensor cannot be read at once."""
    if isinstance(value, torch.Tensor):
        return float(value) if private.is_readable(value) and value.is_cpu and value.numel() == 1 else None
    return float(value) if isinstance(value, (int, float)) else None
