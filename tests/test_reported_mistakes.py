"""Mistakes after public reports, each as small as it can be, and healthy twins of theirs."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import backprobe

STEPS, FAULT_STEP = 60, 40


class Net(nn.Module):
    """``aux`` runs in training mode only."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head, self.aux = nn.Linear(6, 8), nn.Linear(8, 3), nn.Linear(8, 3)

    def forward(self, x):
        h = self.body(x).tanh()
        return self.head(h) + self.aux(h) if self.training else self.head(h)


class ByHand(torch.optim.Optimizer):
    def __init__(self, params):
        super().__init__(params, {})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                ratio = p.norm() / p.grad.norm()
                p.add_(p.grad * ratio, alpha=-0.01)


def train(
    loss_of, optimizer=torch.optim.SGD, steps=STEPS, after=lambda net, step: None, backward=torch.Tensor.backward
):
    """Train on ``loss_of(net, x, step)``; return the findings."""
    torch.manual_seed(0)
    net = Net()
    optimizer = optimizer(net.parameters(), lr=0.01) if optimizer is not ByHand else ByHand(net.parameters())
    with backprobe.trace(net, budget=None) as trace:
        for step in range(steps):
            loss = loss_of(net, torch.randn(16, 6), step)
            optimizer.zero_grad()
            if loss is not None:
                backward(loss)
            if after(net, step) is not False:
                optimizer.step()
    return trace.findings


def fit(net, x, step):
    return F.cross_entropy(net(x), x[:, :3].argmax(1))


def only(findings, kind, line):
    """The one finding, of a `kind`, whose main line holds `line`."""
    (found,) = findings
    assert (found.kind, line in found.sites[0].site.text) == (kind, True), found
    return found


def test_weights_of_a_loss_that_is_several_nodes() -> None:
    def weighted(net, x, step):
        counts = torch.bincount(x[:, :3].argmax(1) * (step < FAULT_STEP), minlength=3)
        weight = 16 / (3 * counts)
        return F.cross_entropy(net(x), x[:, :3].argmax(1), weight=weight, label_smoothing=0.1)

    found = only(train(weighted), "nonfinite-forward", "16 / (3 * counts)")
    assert found.step == FAULT_STEP


def test_a_result_that_is_freed_before_its_inspection() -> None:
    def normalised(net, x, step):
        ring = torch.eye(16).roll(1, 0) * (step < FAULT_STEP)
        scale = ring.sum(1).pow(-0.5)
        h = ((scale[:, None] * ring) @ net.body(x)).relu()
        return (h * 2).add_(1).mean()  # an in-place write: pending values are inspected before it

    only(train(normalised)[:1], "nonfinite-forward", ".pow(-0.5)")  # what follows is of parts that are left out


def test_weights_that_are_moved_between_two_backward_calls() -> None:
    def loss(net, x, step):
        return (net(x) - x[:, :3]).abs().clamp(min=100.0 * (step == FAULT_STEP)).mean()

    def climb(net, step, eps=0.0):
        with torch.no_grad():
            total = torch.stack([p.grad.norm() for p in net.parameters()]).norm() + eps
            moves = [0.01 * p.grad / total for p in net.parameters()]
            for p, move in zip(net.parameters(), moves, strict=True):
                p.add_(move)
        net.zero_grad()
        fit(net, torch.ones(16, 6), step).backward()
        with torch.no_grad():
            for p, move in zip(net.parameters(), moves, strict=True):
                p.sub_(move)

    only(train(loss, after=climb), "nonfinite-forward", "0.01 * p.grad / total")
    assert not train(loss, after=lambda net, step: climb(net, step, 1e-12))


def test_the_line_inside_an_optimizer_of_ones_own() -> None:
    def met(net, x, step):
        return fit(net, x, step) * (step != FAULT_STEP)

    found = only(train(met, ByHand), "nonfinite-forward", "p.add_(p.grad * ratio")
    assert found.step == FAULT_STEP


@pytest.mark.parametrize(("keep", "line"), [(0.99, "noise = u.log()"), (0.2, "y.log()")])
def test_noise_that_softmax_hides_and_a_mask(keep, line) -> None:
    """A rare Inf is an accident of the noise; where most are, it is a mask, and what takes the logarithm is wrong."""

    def sampled(net, x, step):
        torch.manual_seed(step)
        scores = net(x).repeat(1, 20)
        u = (torch.rand(scores.shape) < (1.0 if step < FAULT_STEP else keep)).float()
        noise = u.log()
        y = (scores + noise).softmax(1)
        return (y * y.log()).sum()

    only(train(sampled), "nonfinite-forward", line)


def test_a_second_derivative_that_torch_does_not_have() -> None:
    def penalised(net, x, step):
        x = x.requires_grad_()
        h = net.body(x)[None, None]
        y = F.scaled_dot_product_attention(h, h, h)
        (grad,) = torch.autograd.grad(y.sum(), x, create_graph=True)
        return grad.square().sum()

    def failing(loss):
        with pytest.raises(RuntimeError, match="not implemented"):
            loss.backward()

    found = train(penalised, steps=1, backward=failing, after=lambda net, step: False)[0]
    assert (found.kind, "F.scaled_dot_product_attention" in found.sites[0].site.text) == ("backward-error", True)


def test_a_step_whose_gradients_are_beyond_all_others() -> None:
    def depth(net, x, step, big=1e-8):
        visible = torch.where(torch.arange(16) == 3, big, 1.0)[:, None] if step == FAULT_STEP else 1.0
        return (0.5 / (net(x).sigmoid() * visible)).mean()

    found = only(train(depth, torch.optim.Adam), "exploding-gradient", "0.5 / (")
    assert (found.step, found.confidence) == (FAULT_STEP, "certain")
    assert not train(lambda net, x, step: depth(net, x, step, 0.1), torch.optim.Adam)


def plot_weights(net):
    net.body.requires_grad_(False)


def freeze(net):
    net.body.requires_grad_(False)


def evaluate(change):
    return train(fit, after=lambda net, step: change(net) if step == FAULT_STEP else None)


def test_evaluation_that_is_left_on() -> None:
    def left(net):
        net.eval()

    found = only(evaluate(left), "none-grad", "net.eval()")
    assert set(found.parameters) == {"aux.weight", "aux.bias"}


def test_parameters_that_a_look_freezes() -> None:
    found = only(evaluate(plot_weights), "none-grad", "net.body.requires_grad_(False)")
    assert set(found.parameters) == {"body.weight", "body.bias"}
    assert not evaluate(freeze)  # on purpose, though all of the training is in a function of such a name


@pytest.mark.slow
def test_graphs_in_kept_exceptions_and_generators() -> None:
    errors, runs = [], []

    def check(loss):
        if loss > 0:
            raise ValueError(loss.item())

    def checked(net, x, step):
        loss = fit(net, x, step)
        try:
            check(loss)
        except ValueError as error:
            errors.append((step, error))
        return loss

    def run(net, x, step):
        loss = fit(net, x, step)
        yield loss
        yield loss.item()

    def generated(net, x, step):
        runs.append(run(net, x, step))
        return next(runs[-1])

    only(train(checked), "graph-retained", "errors.append")
    only(train(generated), "graph-retained", "runs.append")


class Reader:
    def __init__(self, cell):
        self.cell, self.state = cell, None

    def read(self, x):
        self.state = self.cell(x, self.state)
        return self.state.mean()


def read(retain):
    """Three steps of twelve backward calls each."""
    torch.manual_seed(0)
    cell = nn.GRUCell(6, 8)
    optimizer = torch.optim.SGD(cell.parameters(), lr=0.01)
    cell(torch.randn(16, 6)).mean().backward()
    optimizer.step()
    with backprobe.trace(cell, budget=None) as trace:
        for step in range(4):
            reader = Reader(cell)
            optimizer.zero_grad()
            for _ in range(12 if step else 1):
                reader.read(torch.randn(16, 6)).backward(retain_graph=retain)
                if not retain:
                    reader.state = reader.state.detach()
            optimizer.step()
    return trace.findings


def test_a_state_that_backward_calls_of_one_step_go_through_again() -> None:
    found = only(read(retain=True), "graph-retained", "self.state = self.cell(")
    assert "retain_graph=True" in found.title
    assert not read(retain=False)


def test_losses_that_share_a_part_keep_its_graph_on_purpose() -> None:
    def tasks(net, x, step):
        h = net.body(x).tanh()
        for k in range(12):
            (net.head(h) + net.aux(h))[:, k % 3].mean().backward(retain_graph=True)

    assert not train(tasks, steps=4)


class WritesData(torch.optim.Optimizer):
    """As optimizers were written before ``no_grad``."""

    def __init__(self, params):
        super().__init__(params, {})

    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    p.data.add_(p.grad.data, alpha=-0.01)


@pytest.mark.parametrize("steps_between", [True, False])
def test_an_optimizer_of_ones_own_that_writes_data_between_two_backward_calls(steps_between) -> None:
    torch.manual_seed(0)
    net = Net()
    optimizer = WritesData(net.parameters())
    with backprobe.trace(net, budget=None) as trace:
        for _ in range(12):
            h = net.body(torch.randn(16, 6)).tanh()
            first, second = net.head(h).square().mean(), net.head(h).sin().mean()
            optimizer.zero_grad()
            first.backward(retain_graph=True)
            if steps_between:
                optimizer.step()
            second.backward()
            optimizer.step()
    found = [(f.kind, f.tensor, f.sites[0].site.function) for f in trace.findings if f.kind != "none-grad"]  # aux
    assert found == ([("silent-mutation", "head.weight", "step")] if steps_between else [])
