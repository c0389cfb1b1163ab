"""In-place writes to a gradient that another node gets too, by custom functions and hooks."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

import backprobe
from backprobe.observe.trackers.gradient_writes import GradientWriteTracker

Tensor = torch.Tensor


class Halves(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        return grad.mul_(0.5)  # line: backward


class HalvesACopy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        return grad * 0.5


def clip(grad: Tensor) -> Tensor:
    grad[grad > 0.1] = 0.1
    return grad


def with_hook(x: Tensor, hook: Callable[[Tensor], object]) -> Tensor:
    y = x * 1
    y.register_hook(hook)
    return y


class Residual(nn.Module):
    """The skip path runs after the branch in the backward: its nodes are older."""

    def __init__(self, branch: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.first, self.inner, self.branch = nn.Linear(3, 3), nn.Linear(3, 3), branch

    def forward(self, x: Tensor) -> Tensor:
        h = self.first(x)
        return h + self.branch(self.inner(h).sigmoid())


class Early(Residual):
    """The other path has run when the branch writes."""

    def forward(self, x: Tensor) -> Tensor:
        y = self.branch(self.inner(x))
        return y + self.first(x)


class Alone(Residual):
    def forward(self, x: Tensor) -> Tensor:
        return self.branch(self.inner(self.first(x)))


class Summed(Residual):
    """The branch gets a sum of two gradients, which no other node has."""

    def forward(self, x: Tensor) -> Tensor:
        h = self.first(x)
        y = self.branch(self.inner(h))
        return h + y + y.square()


def gradients(model: nn.Module, weights: Tensor) -> dict[str, Tensor]:
    torch.manual_seed(1)
    model.zero_grad()
    (model(torch.randn(4, 3)) * weights).sum().backward()
    return {name: p.grad.clone() for name, p in model.named_parameters()}


def found_in(model: nn.Module, steps: int = 2) -> list[backprobe.Finding]:
    weights = torch.randn(4, 3, generator=torch.Generator().manual_seed(2))
    with backprobe.trace(model) as trace:
        for _ in range(steps):
            gradients(model, weights)
    return [one for one in trace.findings if one.kind == "gradient-overwritten"]


BRANCHES = {
    "function": Halves.apply,
    "hook": lambda x: with_hook(x, lambda grad: grad.mul_(0.5)),
    "hook that returns nothing": lambda x: with_hook(x, lambda grad: (grad.mul_(0.5), None)[1]),
    "hook with a name": lambda x: with_hook(x, clip),
}


@pytest.mark.parametrize("branch", BRANCHES)
def test_the_write_and_the_gradients_that_are_wrong(branch: str) -> None:
    model = Residual(BRANCHES[branch])
    (found,) = found_in(model)
    assert (found.severity, found.confidence, found.step) == ("error", "certain", 0)
    assert {"first.weight", "first.bias"} <= set(found.parameters) and "inner.weight" not in found.parameters
    texts = {site.role: site.site.text for site in found.sites}
    assert ("mul_(0.5)" if branch != "hook with a name" else "grad[grad > 0.1] = 0.1") in texts["mutated"]
    if branch == "function":
        assert "self.branch(" in texts["applied"] and "the backward of Halves writes in place" in found.title
    else:
        assert texts["hook"] == "y.register_hook(hook)" and "a hook on the result of mul" in found.title
    assert "which add gives to two operations" in found.title


def test_the_gradients_are_wrong_indeed() -> None:
    weights = torch.ones(4, 3)
    torch.manual_seed(0)
    wrong = Residual(Halves.apply)
    right = Residual(HalvesACopy.apply)
    right.load_state_dict(wrong.state_dict())
    mine, other = gradients(wrong, weights), gradients(right, weights)
    torch.testing.assert_close(mine["inner.weight"], other["inner.weight"])
    assert not torch.allclose(mine["first.bias"], other["first.bias"])


@pytest.mark.parametrize("model", [Early, Alone, Summed])
@pytest.mark.parametrize("branch", BRANCHES)
def test_a_write_that_no_other_node_sees_is_no_finding(model: type[Residual], branch: str) -> None:
    torch.manual_seed(0)
    mine = model(BRANCHES[branch])
    copy = model(HalvesACopy.apply)
    copy.load_state_dict(mine.state_dict())
    if branch != "hook with a name":  # it does the same in another way
        weights = torch.randn(4, 3)
        for name, grad in gradients(mine, weights).items():
            torch.testing.assert_close(grad, gradients(copy, weights)[name])
    assert not found_in(mine)


@pytest.mark.parametrize("branch", [HalvesACopy.apply, lambda x: with_hook(x, lambda grad: grad * 0.5)])
def test_code_that_returns_a_new_tensor_is_no_finding(branch: Callable[[Tensor], Tensor]) -> None:
    assert not found_in(Residual(branch))


def test_one_function_is_one_finding() -> None:
    blocks = nn.Sequential(*(Residual(Halves.apply) for _ in range(4)))
    (found,) = found_in(blocks, steps=5)
    assert len(found.parameters) > 4


def test_an_internal_error_does_not_reach_the_backward(monkeypatch) -> None:
    def fails(*given: object) -> None:
        raise ValueError("internal")

    monkeypatch.setattr(GradientWriteTracker, "_record", fails)
    model = Residual(Halves.apply)
    with backprobe.trace(model) as trace:
        gradients(model, torch.ones(4, 3))
    assert model.first.weight.grad is not None
    assert [one.what for one in trace.coverage.unseen] == ["internal error"]


def test_no_hook_stays_on_a_graph_that_the_script_keeps(monkeypatch) -> None:
    calls: list[object] = []
    monkeypatch.setattr(GradientWriteTracker, "_note_given", lambda self, *given: calls.append(given))
    model = Residual(HalvesACopy.apply)
    with backprobe.trace(model):
        y = model(torch.randn(4, 3)).square().sum()
        y.backward(retain_graph=True)
    assert len(calls) == 1
    y.backward()
    assert len(calls) == 1
