"""Steps and their losses, in training loops of all kinds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from watching import watched

from backprobe.observe.session import Settings

N = 5
Loop = Callable[[], Any]


def net(inside: int = 4, outside: int = 1) -> nn.Module:
    return nn.Sequential(nn.Linear(inside, 8), nn.Tanh(), nn.Linear(8, outside))


def sgd(*models: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD([p for m in models for p in m.parameters()], 0.05)


def plain() -> None:
    model = net()
    opt = sgd(model)
    for _ in range(N):
        opt.zero_grad()
        model(torch.randn(8, 4)).square().mean().backward()
        opt.step()


def two_optimizers() -> None:
    body, head = net(4, 8), net(8)
    first, second = sgd(body), sgd(head)
    for _ in range(N):
        first.zero_grad()
        second.zero_grad()
        head(body(torch.randn(8, 4))).square().mean().backward()
        first.step()
        second.step()


def accumulation() -> None:
    model = net()
    opt = sgd(model)
    for i in range(4 * N):
        (model(torch.randn(8, 4)).square().mean() / 4).backward()
        if i % 4 == 3:
            opt.step()
            opt.zero_grad()


def two_losses_then_steps() -> None:
    a, b = net(), net()
    opt_a, opt_b = sgd(a), sgd(b)
    for _ in range(N):
        opt_a.zero_grad()
        opt_b.zero_grad()
        a(torch.randn(8, 4)).square().mean().backward()
        b(torch.randn(8, 4)).square().mean().backward()
        opt_a.step()
        opt_b.step()


def penalty(critic: nn.Module, x: torch.Tensor) -> torch.Tensor:
    x = x.detach().requires_grad_()
    (g,) = torch.autograd.grad(critic(x).sum(), x, create_graph=True)
    return (g.norm(2, 1) - 1).square().mean()


def gradient_penalty() -> None:
    model = net()
    opt = sgd(model)
    for _ in range(N):
        opt.zero_grad()
        x = torch.randn(8, 4)
        (model(x).mean() + penalty(model, x)).backward()
        opt.step()


def wgan(critic_steps: int) -> None:
    gen, critic = net(2, 4), net()
    opt_g, opt_d = sgd(gen), sgd(critic)
    for _ in range(N):
        for _ in range(critic_steps):
            real, fake = torch.randn(8, 4), gen(torch.randn(8, 2)).detach()
            opt_d.zero_grad()
            (critic(fake).mean() - critic(real).mean() + penalty(critic, fake)).backward()
            opt_d.step()
        opt_g.zero_grad()
        (-critic(gen(torch.randn(8, 2))).mean()).backward()
        opt_g.step()


def maml() -> None:
    model = net()
    opt = sgd(model)
    for _ in range(N):
        opt.zero_grad()
        for _ in range(2):
            weights = dict(model.named_parameters())
            for _ in range(2):
                loss = torch.func.functional_call(model, weights, torch.randn(8, 4)).square().mean()
                grads = torch.autograd.grad(loss, tuple(weights.values()), create_graph=True)
                weights = {k: w - 0.1 * g for (k, w), g in zip(weights.items(), grads, strict=True)}
            torch.func.functional_call(model, weights, torch.randn(8, 4)).square().mean().backward()
        opt.step()


def first_order_maml() -> None:
    model = net()
    opt = sgd(model)
    for _ in range(N):
        opt.zero_grad()
        weights = dict(model.named_parameters())
        loss = torch.func.functional_call(model, weights, torch.randn(8, 4)).square().mean()
        grads = torch.autograd.grad(loss, tuple(weights.values()))
        weights = {k: w - 0.1 * g for (k, w), g in zip(weights.items(), grads, strict=True)}
        torch.func.functional_call(model, weights, torch.randn(8, 4)).square().mean().backward()
        opt.step()


def lbfgs() -> None:
    model = net()
    opt = torch.optim.LBFGS(model.parameters(), max_iter=4)
    x = torch.randn(8, 4)

    def closure() -> torch.Tensor:
        opt.zero_grad()
        loss = (model(x) - 1).square().mean()
        loss.backward()
        return loss

    for _ in range(N):
        opt.step(closure)


def by_hand() -> None:
    model = net()
    for _ in range(N):
        model(torch.randn(8, 4)).square().mean().backward()
        with torch.no_grad():
            for p in model.parameters():
                p -= 0.05 * p.grad
                p.grad = None


def by_hand_zeroed() -> None:
    w = torch.randn(4, 1, requires_grad=True)
    for _ in range(N):
        (torch.randn(8, 4) @ w).square().mean().backward()
        w.data -= 0.05 * w.grad
        w.grad.zero_()


def by_hand_new_leaf() -> None:
    w = torch.randn(4, 1, requires_grad=True)
    for _ in range(N):
        (torch.randn(8, 4) @ w).square().mean().backward()
        w = (w - 0.05 * w.grad).detach().requires_grad_()


def by_hand_with_grad() -> None:
    model = net()
    for _ in range(N):
        grads = torch.autograd.grad(model(torch.randn(8, 4)).square().mean(), list(model.parameters()))
        with torch.no_grad():
            for p, g in zip(model.parameters(), grads, strict=True):
                p -= 0.05 * g


def scaler(skips: tuple[int, ...] = (), count: int = 1) -> None:
    model = net()
    opt, amp = sgd(model), torch.amp.GradScaler("cpu", init_scale=1024.0)
    for i in range(N):
        opt.zero_grad()
        for _ in range(count):
            loss = model(torch.randn(8, 4)).square().mean() / count
            amp.scale(loss * (float("inf") if i in skips else 1.0)).backward()
        amp.step(opt)
        amp.update()


def evaluation_with_backward() -> None:
    """A saliency map in the middle of training."""
    model = net()
    opt = sgd(model)
    for i in range(N):
        if i % 2:
            x = torch.randn(8, 4, requires_grad=True)
            model(x).sum().backward()
        opt.zero_grad()
        model(torch.randn(8, 4)).square().mean().backward()
        opt.step()


def attack() -> None:
    model = net()
    opt = sgd(model)
    for _ in range(N):
        x = torch.randn(8, 4)
        for _ in range(3):
            x = x.detach().requires_grad_()
            model(x).square().mean().backward()
            x = x + 0.1 * x.grad.sign()
        opt.zero_grad()
        model(x.detach()).square().mean().backward()
        opt.step()


def in_backward() -> None:
    """An optimizer for each parameter, which steps from its hook."""
    model = net()
    opts = {p: torch.optim.SGD([p], 0.05) for p in model.parameters()}

    def step(p: torch.Tensor) -> None:
        opts[p].step()
        opts[p].zero_grad()

    for p in model.parameters():
        p.register_post_accumulate_grad_hook(step)
    for _ in range(N):
        model(torch.randn(8, 4)).square().mean().backward()


LOOPS: dict[str, tuple[Loop, int]] = {
    "one optimizer": (plain, N),
    "several optimizers": (two_optimizers, N),
    "accumulation": (accumulation, N),
    "two losses, then two steps": (two_losses_then_steps, N),
    "gradient penalty": (gradient_penalty, N),
    # An update of the critic and one of the generator are steps of their own.
    "WGAN-GP": (lambda: wgan(1), 2 * N),
    "WGAN-GP, five critic steps": (lambda: wgan(5), 6 * N),
    "MAML": (maml, N),
    "first-order MAML": (first_order_maml, N),
    "LBFGS": (lbfgs, N),
    "no optimizer, grad = None": (by_hand, N),
    "no optimizer, grad.zero_()": (by_hand_zeroed, N),
    "no optimizer, new leaves": (by_hand_new_leaf, N),
    "no optimizer, autograd.grad": (by_hand_with_grad, N),
    "scaler": (scaler, N),
    "scaler that skips the first": (lambda: scaler((0,)), N),
    "scaler that skips some": (lambda: scaler((1, 2, 4)), N),
    "scaler and accumulation": (lambda: scaler((2,), 3), N),
    "backward in an evaluation": (evaluation_with_backward, N),
    "adversarial training": (attack, N),
    "optimizers in the backward": (in_backward, N),
}


def seen(loop: Loop, settings: Settings | None = None) -> list[Any]:
    torch.manual_seed(0)
    session, collector = watched(settings)
    session.start()
    try:
        loop()
    finally:
        session.stop()
    assert session.error is None, session.error
    return list(collector.trace(session).steps)


@pytest.mark.parametrize("name", LOOPS)
def test_steps_are_the_updates(name: str) -> None:
    loop, count = LOOPS[name]
    session, collector = watched()
    torch.manual_seed(0)
    session.start()
    loop()
    session.stop()
    assert session.error is None, session.error
    assert collector.steps == count


def test_losses_of_accumulated_calls_add_up_to_the_mean() -> None:
    said: list[float] = []

    def loop() -> None:
        model = net()
        opt = sgd(model)
        for _ in range(N):
            opt.zero_grad()
            losses = []
            for _ in range(4):
                loss = model(torch.randn(8, 4)).square().mean()
                losses.append(loss.item())
                (loss / 4).backward()
            opt.step()
            said.append(sum(losses) / 4)

    for level in ("nodes", "minimal"):
        said.clear()
        steps = seen(loop, Settings(level))
        assert [s.loss for s in steps] == pytest.approx(said)
        assert {s.record.calls for s in steps} == {4}


@pytest.mark.parametrize("level", ["nodes", "minimal"])
def test_the_factor_of_a_scaler_is_divided_out(level: str) -> None:
    said: list[float] = []
    norms: list[float] = []

    def loop() -> None:
        model = net()
        opt, amp = sgd(model), torch.amp.GradScaler("cpu", init_scale=4096.0, growth_interval=2)
        for _ in range(N):
            opt.zero_grad()
            loss = model(torch.randn(8, 4)).square().mean()
            said.append(loss.item())
            amp.scale(loss).backward()
            amp.unscale_(opt)
            norms.append(model[0].weight.grad.norm().item())
            amp.step(opt)
            amp.update()

    steps = seen(loop, Settings(level))
    assert [s.loss for s in steps] == pytest.approx(said)
    assert [s.record.scale for s in steps] == [4096.0, 4096.0, 8192.0, 8192.0, 16384.0]
    assert [s.parameters["0.weight"].grad for s in steps[:3]] == pytest.approx(norms[:3])
    if level == "nodes":
        for step, loss, norm in zip(steps, said, norms, strict=True):
            (call,) = step.backwards
            assert call.roots[0].value == pytest.approx(loss)
            weight = next(run for run in call.nodes if run.parameter == "0.weight")
            assert weight.grad_outputs[0].norm == pytest.approx(norm)
            assert float(call.arguments["loss_scale"]) == step.record.scale


def test_a_factor_of_the_scripts_own_stays() -> None:
    """The factor is indistinguishable from a part of the loss: loss and gradients include it."""

    def loop() -> None:
        w = torch.ones(3, requires_grad=True)
        opt = torch.optim.SGD([w], 0.0)
        for _ in range(2):
            opt.zero_grad()
            (w.sum() * 1024.0).backward()
            opt.step()

    for step in seen(loop):
        assert step.loss == 3072.0 and step.record.scale == 1.0
        assert step.backwards[0].nodes[0].grad_outputs[0].norm == 1.0


def test_gradients_that_were_cleared_bring_their_loss_to_nothing() -> None:
    said: list[float] = []

    def loop() -> None:
        model = net()
        opt = sgd(model)
        for _ in range(N):
            x = torch.randn(8, 4, requires_grad=True)
            model(x).square().sum().backward()
            opt.zero_grad()
            loss = model(x.detach()).square().mean()
            said.append(loss.item())
            loss.backward()
            opt.step()

    steps = seen(loop)
    assert [s.loss for s in steps] == pytest.approx(said)


def test_losses_of_two_parts_add_up() -> None:
    steps = seen(two_losses_then_steps)
    for step in steps:
        assert step.loss == pytest.approx(sum(call.roots[0].value for call in step.backwards))
        assert step.record.calls == 2


def test_the_last_evaluation_of_a_closure_is_the_loss() -> None:
    for step in seen(lbfgs):
        assert step.loss == step.backwards[-1].roots[0].value


def test_a_scaler_is_known_in_the_first_step() -> None:
    """The scale is found in the loop's own frames in the first step, where no scaler was seen updating yet."""
    first = seen(scaler)[0]
    assert first.record.scale == 1024.0 and first.loss is not None and first.loss < 100
