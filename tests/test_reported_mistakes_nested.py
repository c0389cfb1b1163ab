"""Mistakes after public reports whose line is inside something, or one of several: in a transform of ``torch.func``, in
compiled code, in a state that is carried on, in another branch, in one of two parts that went bad or died."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from test_reported_mistakes import FAULT_STEP, STEPS, train
from torch import nn
from torch.func import functional_call, grad, jacrev, vmap
from torch.nn import functional as F

import backprobe


def first(findings, kind, *lines):
    """The first finding, of a `kind`, whose main lines hold `lines`."""
    found = findings[0] if findings else None
    assert found is not None and found.kind == kind, found
    role = found.sites[0].role
    mine = [site.site.text for site in found.sites if site.role == role]
    assert all(any(line in text for text in mine) for line in lines), found
    return found


# Inside transforms of torch.func ------------------------------------------------------------------------------------


def length(p):
    return p.square().sum().sqrt()


def energy(net, params, p):
    return functional_call(net, params, (torch.cat([length(p)[None], p]),)).sum()


def slope_at_zero(net, x, step):
    force = vmap(grad(energy, 2), in_dims=(None, None, 0))
    points = x[:, :5] * (1.0 if step != FAULT_STEP else (torch.arange(16) != 3).float()[:, None])
    return force(net, dict(net.named_parameters()), points).abs().mean()


def slope_of_one(net, x, step):
    p = x[0, :5] * (step != FAULT_STEP)
    return grad(energy, 2)(net, dict(net.named_parameters()), p).abs().mean()


def jacobian_of_a_root(net, x, step):
    def stretched(v):
        return net(v).tanh() * v.prod().abs().pow(0.5)

    return jacrev(stretched)(x[0] * (step != FAULT_STEP)).square().mean()


def logarithm_of_each(net, x, step):
    def one(v):
        return (net(v) - net(v).detach() + (step != FAULT_STEP)).log().sum()

    return vmap(one)(x).mean()


def ratio_of_each(net, x, step):
    def one(v):
        h = net(v)
        return (h / (v.sum() * (step != FAULT_STEP))).tanh().sum()

    return vmap(one)(x).mean()


UNSEEN = pytest.mark.xfail(strict=True, reason="what is computed for many at once is not looked at")


@pytest.mark.parametrize(
    ("loss", "kind", "line"),
    [
        pytest.param(slope_at_zero, "nonfinite-backward", "p.square().sum().sqrt()", marks=UNSEEN),
        (slope_of_one, "nonfinite-backward", "p.square().sum().sqrt()"),
        pytest.param(jacobian_of_a_root, "nonfinite-backward", ".abs().pow(0.5)", marks=UNSEEN),
        pytest.param(logarithm_of_each, "nonfinite-forward", ".log().sum()", marks=UNSEEN),
        pytest.param(ratio_of_each, "nonfinite-forward", "(h / (v.sum()", marks=UNSEEN),
    ],
)
def test_inside_a_transform(loss, kind, line) -> None:
    assert first(train(loss), kind, line).step == FAULT_STEP


# Inside what is compiled to be run as it is --------------------------------------------------------------------------


def spread(h):
    return h.var(1).sqrt()


def pooled(h):
    h = h * 2
    return spread(h).mean()


def angles(h):
    a = h[:, 0] / h[:, 0].abs().clamp(min=1e-6)
    b = a.clamp(-1, 1).acos()
    return b.mean()


def bits(h):
    h = h - h.detach()
    return (h + 0.0).log().mean()


class Axes(nn.Module):
    def forward(self, h):
        c = h.T @ h
        values, vectors = torch.linalg.eigh(c)
        return (vectors * values).sum()


COMPILED = {
    "helper": (pooled, "nonfinite-backward", "h.var(1).sqrt()"),
    "angle": (angles, "nonfinite-backward", ".acos()"),
    "forward": (bits, "nonfinite-forward", "(h + 0.0).log()"),
    "module": (Axes(), "nonfinite-backward", "torch.linalg.eigh(c)"),
}


@pytest.mark.filterwarnings("default")
@pytest.mark.usefixtures("fresh_dynamo")
@pytest.mark.parametrize("name", COMPILED)
def test_inside_what_is_compiled_and_run_as_it_is(name) -> None:
    part, kind, line = COMPILED[name]
    compiled = torch.compile(part, backend="eager")

    def loss(net, x, step):
        h = net(x)
        bad = step == FAULT_STEP
        return (
            compiled(h * 0 + (torch.eye(16, 3) if name == "module" else 1.0) if bad else h)
            if bad or name == ("helper")
            else h.square().mean()
        )

    assert first(train(loss), kind, line).step == FAULT_STEP


# What carries a state on ---------------------------------------------------------------------------------------------


class Controller(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(inputs, 16), nn.Tanh(), nn.Linear(16, outputs))

    def forward(self, *state):
        return self.net(torch.cat(state, -1))


def rolled(step_of, inputs, outputs, start, steps=30, horizon=(8, 400), late=20):
    torch.manual_seed(0)
    controller = Controller(inputs, outputs)
    optimizer = torch.optim.Adam(controller.parameters(), lr=1e-3)
    with backprobe.trace(controller, budget=None) as trace:
        for step in range(steps):
            state = start()
            for _ in range(horizon[step >= late]):
                state = step_of(controller, *state)
            loss = sum(s.square().mean() for s in state)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return trace.findings


def lorenz(controller, x, y, z, dt=0.02):
    u = controller(x / 20, y / 20, z / 20)
    dx, dy, dz = 10 * (y - x) + u, x * (28 - z) - y, x * y - 8 / 3 * z
    x, y, z = x + dt * dx, y + dt * dy, z + dt * dz  # carried on
    return x, y, z


def kicked(controller, angle, momentum):
    kick = 3.0 * angle.sin() + 0.1 * controller(angle.sin(), momentum.cos())
    momentum = momentum + kick  # carried on
    angle = angle + momentum  # carried on
    return angle, momentum


def swarm(controller, h):
    force = controller(h.sin())
    pull = (h - h.roll(1, -1)) * 1.7
    return (h + 0.1 * (pull + force),)  # carried on


def normal(n, width):
    return lambda: tuple(torch.randn(4, width) for _ in range(n))


def test_a_state_of_several_parts() -> None:
    first(rolled(lorenz, 3, 1, normal(3, 1)), "exploding-gradient", "# carried on")
    first(rolled(kicked, 2, 1, normal(2, 1), horizon=(4, 60)), "exploding-gradient", "# carried on")


def test_a_state_of_one_part() -> None:
    first(rolled(swarm, 5, 5, normal(1, 5), horizon=(8, 120)), "exploding-gradient", "# carried on")


# What a branch of evaluation cuts ------------------------------------------------------------------------------------


class Coded(nn.Module):
    """Another way through in evaluation mode."""

    def __init__(self, way):
        super().__init__()
        self.body, self.head, self.way = nn.Linear(6, 8), nn.Linear(8, 3), way

    def code(self, h):
        if self.training:
            return (h.softmax(-1) if self.way == "argmax" else h.sigmoid()) * 2
        if self.way == "argmax":
            return F.one_hot(h.argmax(-1), 8).float()  # CUT
        if self.way == "threshold":
            return (h > 0).to(h.dtype)  # CUT
        if self.way == "detach":
            return h.sigmoid().detach()  # CUT
        return torch.tensor(h.tolist()).sigmoid()  # CUT

    def forward(self, x):
        return self.head(self.code(self.body(x)))


@pytest.mark.parametrize("way", ["argmax", "threshold", "detach", "list"])
def test_what_evaluation_mode_cuts(way) -> None:
    torch.manual_seed(0)
    net = Coded(way)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with backprobe.trace(net, budget=None) as trace:
        for step in range(STEPS):
            if step == FAULT_STEP - 20:
                net.eval()
            x = torch.randn(16, 6)
            loss = F.cross_entropy(net(x), x[:, :3].argmax(1))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    found = first(trace.findings, "none-grad", "# CUT")
    assert found.step == FAULT_STEP - 20
    assert any("net.eval()" in site.site.text for site in found.sites)


# Two parts that are bad ----------------------------------------------------------------------------------------------


def causes(findings):
    return [site.site.text for found in findings for site in found.sites if site.role == "cause"]


def both_named(loss, *lines):
    found = causes(train(loss))
    assert len(found) == len(lines) and all(line in text for line, text in zip(lines, found, strict=True)), found


def two_terms(net, x, step):
    h = net(x)
    a = (h.square().mean(1) - 1e9 * (step == FAULT_STEP)).log()
    b = (h[:, 0].square() - 1e9 * (step == FAULT_STEP)).sqrt()
    return a.mean() + b.mean()


def a_value_and_a_slope(net, x, step):
    h = net(x)
    a = (h.square().mean(1) - 1e9 * (step == FAULT_STEP)).log()
    b = (h[:, 0] * (step != FAULT_STEP)).square().sqrt()
    return a.mean() + b.mean()


def two_targets(net, x, step):
    def target(y, temperature):
        q = torch.exp(y / temperature)
        q = q / q.sum(0, keepdim=True)
        return q / q.sum(1, keepdim=True)

    with torch.no_grad():
        one, other = target(x[:, :3], 1e-3 if step == FAULT_STEP else 1.0), target(x[:, 3:].abs() + 2, 1.0)
        other = other / (other.sum(1, keepdim=True) * (step != FAULT_STEP))
    h = net(x).log_softmax(-1)
    return -(other * h).sum(-1).mean() - (one * h).sum(-1).mean()


def slopes_of_two_roots(net, x, step):
    h = net(x) * (step != FAULT_STEP)
    a = h[:, 0].square().sqrt()
    b = h[:, 1:].square().sum(1).pow(0.5)
    return a.mean() + b.mean()


def test_two_terms_that_are_not_finite() -> None:
    both_named(two_terms, ".log()", ".sqrt()")


def test_a_term_and_the_slope_of_another() -> None:
    both_named(a_value_and_a_slope, ".log()", ".square().sqrt()")


def test_two_slopes() -> None:
    both_named(slopes_of_two_roots, ".pow(0.5)", ".square().sqrt()")


def test_two_targets_outside_the_graph() -> None:
    both_named(two_targets, "torch.exp(y / temperature)", "other = other / (other.sum(")


def test_consequences_are_not_reported() -> None:
    """Two terms share one non-finite value, or one line runs twice: the finding names only the origin."""

    def shared(net, x, step):
        h = (net(x).square() - 1e9 * (step == FAULT_STEP)).log()
        return h.mean() + h.exp().sqrt().mean() + h.square().mean().sqrt()

    def twice(net, x, step):
        parts = [net(x + i).square() - 1e9 * (step == FAULT_STEP) for i in range(2)]
        return sum(part.log().mean() for part in parts)

    both_named(shared, ".log()")
    both_named(twice, ".log()")


# Parts that died one after another -----------------------------------------------------------------------------------


class Chain(nn.Module):
    def __init__(self, gate):
        super().__init__()
        self.shift, self.body, self.head, self.gate = nn.Linear(6, 6), nn.Linear(6, 8), nn.Linear(8, 3), gate

    def forward(self, x):
        h = self.shift(x)
        if self.gate == "clamp":
            h = h.clamp(-50, 50)  # first
        elif self.gate == "relu":
            h = h.relu()  # first
        else:
            grid = (h[:, :2] - 1)[:, None, None]
            seen = F.grid_sample(x[:, None, None].expand(-1, 6, 6, 6), grid, align_corners=False)  # first
            h = seen[:, :, 0, 0]
        return self.head(self.body(h).relu())  # second


@pytest.mark.parametrize("gate", ["clamp", "relu", "window"])
def test_what_died_before_all_did(gate) -> None:
    torch.manual_seed(0)
    net = Chain(gate)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    with backprobe.trace(net, budget=None) as trace:
        for step in range(STEPS):
            with torch.no_grad():
                if step == 20:
                    net.shift.bias.fill_(-1000.0)
                if step == FAULT_STEP:
                    net.body.bias.fill_(-1e6)
            x = torch.randn(16, 6)
            loss = F.cross_entropy(net(x), x[:, :3].argmax(1))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    found = first(trace.findings, "zero-grad", "# first")
    assert found.step == 20 and set(found.parameters) == {"shift.bias", "shift.weight"}
    other = first(trace.findings[1:], "zero-grad", "# second")
    assert other.step >= FAULT_STEP and set(other.parameters) == {"body.bias", "body.weight"}


def test_all_that_died_at_once() -> None:
    torch.manual_seed(0)
    net = Chain("clamp")
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    with backprobe.trace(net, budget=None) as trace:
        for step in range(STEPS):
            if step == FAULT_STEP:
                with torch.no_grad():
                    net.body.bias.fill_(-1e6)
            x = torch.randn(16, 6)
            loss = F.cross_entropy(net(x), x[:, :3].argmax(1))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    (found,) = trace.findings
    first([found], "zero-grad", "# second")
    assert set(found.parameters) == {"shift.bias", "shift.weight", "body.bias", "body.weight"}


def test_a_run_that_goes_on_exploded() -> None:
    """Memory holds few of its steps: those before are among them."""
    torch.manual_seed(0)
    net = nn.Linear(8, 8)
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-30)
    with backprobe.trace(net) as trace:
        for step in range(150):
            x = torch.randn(16, 8)
            (net(x) / (1.0 if step < 60 else 1e-7)).square().mean().backward()  # HERE
            optimizer.step()
            optimizer.zero_grad()
    exploding = [one for one in trace.findings if one.kind != "update-too-small"]  # as the rate says
    assert first(exploding, "exploding-gradient", "# HERE").step == 60


def around_numpy(p):
    """Pass a gradient-free value through NumPy: the parameters learn nothing from the result."""
    heights = torch.from_numpy(np.sort(p.detach().numpy()))  # CUT
    return (heights - heights.mean()).square().mean()


def scored(p):
    return torch.from_numpy(np.sort(p.detach().numpy())).mean()


@pytest.mark.parametrize("told", [True, False])
def test_parameters_reachable_only_through_numpy(told):
    """From step 30 on, the loss depends on one part only through NumPy, or the script merely logs that part."""
    torch.manual_seed(0)
    body, head = nn.Linear(4, 4), nn.Linear(4, 1)
    net = nn.ModuleList([body, head])
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    with backprobe.trace(net) as trace:
        for step in range(60):
            p = body(torch.randn(8, 4))
            loss = head(torch.randn(8, 4)).square().mean()
            if told:
                loss = loss + around_numpy(p)
            else:
                scored(p)
            if step < 30:
                loss = loss + p.square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    if not told:
        assert list(trace.findings) == []
        return
    found = first(trace.findings, "none-grad", "# CUT")
    assert found.step == 30 and "NumPy" in found.title and set(found.parameters) == {"0.weight", "0.bias"}
