"""Gradients and weights that the script made non-finite outside the backward: the line and the step."""

from __future__ import annotations

import sys

import pytest
import torch
from handmade import INF, NAN, at, bad_root, call, kinds, leaf, only, roles, run, traced
from torch import nn

import backprobe
from backprobe.records import BadNode, GradientHook, GradStat, Spoilt

STEPS, WHEN = 14, 8


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(6, 8), nn.Linear(8, 3)
        self.hook = None

    def forward(self, x):
        h = self.first(x).relu()
        if self.hook is not None:
            h.register_hook(self.hook)
        return self.last(h)


def train(prepare=None, after=None, optimizer=torch.optim.SGD):
    """Findings of a run in which something happens in step ``WHEN``."""
    torch.manual_seed(0)
    net = Net()
    optimizer = optimizer(net.parameters(), lr=0.1)
    now = [0]
    if prepare is not None:
        prepare(net, lambda: now[0] == WHEN)
    with backprobe.trace(net) as trace:
        for now[0] in range(STEPS):
            loss = nn.functional.cross_entropy(net(torch.randn(8, 6)), torch.randint(0, 3, (8,)))
            optimizer.zero_grad()
            loss.backward()
            if after is not None:
                after(net, optimizer, now[0] == WHEN)
            nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            optimizer.step()
    return trace.findings


def here():
    """The line after the one that calls this."""
    return sys._getframe(1).f_lineno + 1


def in_place(net, optimizer, bad):
    for p in net.parameters():
        in_place.line = here()
        p.grad.div_(0.0 if bad else 1.0)


def assigned(net, optimizer, bad):
    for p in net.parameters():
        assigned.line = here()
        p.grad = p.grad / (0.0 if bad else 1.0)


def behind_autograd(net, optimizer, bad):
    for p in net.parameters():
        behind_autograd.line = here()
        p.grad.numpy()[:] *= float("nan") if bad else 1.0


def together(net, optimizer, bad):
    grads = [p.grad for p in net.parameters()]
    together.line = here()
    torch._foreach_mul_(grads, float("inf") if bad else 1.0)


def weights(net, optimizer, bad):
    with torch.no_grad():
        weights.line = here()
        net.last.weight.div_(0.0 if bad else 1.0)


@pytest.mark.parametrize("after", [in_place, assigned, behind_autograd, together])
def test_a_line_that_makes_gradients_nonfinite(after) -> None:
    (found,) = train(after=after)
    assert (found.kind, found.step, found.confidence) == ("nonfinite-backward", WHEN, "certain")
    assert [(s.role, s.site.line) for s in found.sites] == [("cause", after.line)]
    assert "first.weight" in found.parameters


def test_a_line_or_an_optimizer_that_makes_weights_nonfinite() -> None:
    (found,) = train(after=weights)
    assert (found.kind, found.step, found.parameters) == ("nonfinite-forward", WHEN, ("last.weight",))
    assert found.sites[0].site.line == weights.line

    def infinite(net, optimizer, bad):
        if bad:
            optimizer.param_groups[0]["lr"] = float("inf")

    (found,) = train(after=infinite)
    assert (found.kind, found.step, found.confidence) == ("nonfinite-forward", WHEN, "certain")
    assert found.title.startswith("SGD.step made")
    assert "its lr is inf" in found.title
    assert found.sites[0].site.text == "optimizer.step()"


def test_hooks_that_make_gradients_nonfinite() -> None:
    def spoil(bad):
        def hook(g):
            spoil.line = here()
            return g / 0.0 if bad() else None

        return hook

    def on_tensor(net, bad):
        net.hook = spoil(bad)

    def on_leaf(net, bad):
        net.first.weight.register_hook(spoil(bad))

    for prepare in (on_tensor, on_leaf):
        (found,) = train(prepare)
        assert (found.kind, found.step, found.sites[0].site.line) == ("nonfinite-backward", WHEN, spoil.line)

    def on_module(net, bad):
        def hook(module, came, went):
            on_module.line = here()
            return tuple(g * float("nan") for g in went) if bad() else None

        net.last.register_full_backward_pre_hook(lambda module, went: None)
        net.last._backward_pre_hooks.clear()
        net.last.register_full_backward_hook(lambda module, came, went: hook(module, went, came))

    (found,) = train(on_module)
    assert (found.kind, found.step, found.module) == ("nonfinite-backward", WHEN, "last")

    def after_accumulation(net, bad):
        def hook(p):
            after_accumulation.line = here()
            p.grad.mul_(float("inf") if bad() else 1.0)

        net.last.weight.register_post_accumulate_grad_hook(hook)

    (found,) = train(after_accumulation)
    assert (found.kind, found.step, found.sites[0].site.line) == ("nonfinite-backward", WHEN, after_accumulation.line)


def test_edited_gradients_that_stay_finite_have_no_finding() -> None:
    def noise(net, optimizer, bad):
        for p in net.parameters():
            p.grad.add_(1e-3 * torch.randn_like(p.grad))
            p.grad = p.grad * 2

    assert train(after=noise) == []


def test_a_script_that_skips_the_nonfinite_step_has_no_finding() -> None:
    def guarded(net, optimizer, bad):
        in_place(net, optimizer, bad)
        if not all(p.grad.isfinite().all() for p in net.parameters()):
            optimizer.zero_grad()

    assert train(after=guarded) == []


NODES = (run("SumBackward0", 1, op="sum", line=13), run("MulBackward0", 2, op="mul", line=12), leaf("weight"))


def test_findings_of_hand_written_records() -> None:
    """The finding names the step before the first non-finite one; later effects have no finding."""
    spoilt = Spoilt(0, "gradient", ("weight",), "div_", at(50))
    first, bad = call(*NODES, index=0), call(*NODES, index=1, roots=bad_root())
    found = only(traced(first, bad, seen=[spoilt]))
    assert (found.kind, found.step, roles(found)) == ("nonfinite-backward", 0, [("cause", 50)])
    assert kinds(traced(first, seen=[spoilt])) == ["nonfinite-backward"]  # the script ended there
    assert kinds(traced(first, call(*NODES, index=1), seen=[spoilt])) == []  # the gradient was thrown away
    assert kinds(traced(first, call(*NODES, index=1), bad, seen=[spoilt])) == ["nonfinite-forward"]

    nodes = [NODES[0], run("MulBackward0", 2, op="mul", line=12, came=(1.0,)), NODES[2]]
    made = call(*nodes, bad_nodes=(BadNode(1, 0, NAN, False, ()),))
    hook = GradientHook(0, 1, at(60), at(61))
    assert only(traced(made, seen=[hook])).sites[0].site == at(12)  # what the hook gave was finite
    bad_stat = GradStat((8,), "float32", float("inf"), INF)
    spoilt_node = NODES[1].__class__(NODES[1].node, 0, 0.0, (bad_stat,), (bad_stat,))
    found = only(traced(call(NODES[0], spoilt_node, NODES[2]), seen=[hook]))
    assert roles(found) == [("cause", 60), ("hook", 61), ("failed", 90)]
