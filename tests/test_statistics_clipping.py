"""The share of its gradients that an optimizer gets after clipping, compared with a direct computation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from watching import watched

from backprobe.observe.session import Settings
from backprobe.traces import Statistics


def model() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))


def length(parameters: Any) -> float:
    return float(torch.cat([p.grad.double().flatten() for p in parameters if p.grad is not None]).norm())


def seen(script: Callable[[Callable[[Any], None]], None], every: int = 2) -> tuple[Statistics, list[float]]:
    """The statistics of a script that tells the total norm after its last backward, and before the optimizer."""
    told: list[float] = []
    session, sink = watched(Settings("minimal", layer_stats=every))
    session.start()
    script(lambda parameters: told.append(length(parameters)))
    session.stop()
    assert session.error is None
    return sink.trace(session).statistics, [after / before for before, after in zip(told[::2], told[1::2], strict=True)]


def norm(net: nn.Module) -> None:
    nn.utils.clip_grad_norm_(net.parameters(), 0.05)


def value(net: nn.Module) -> None:
    nn.utils.clip_grad_value_(net.parameters(), 1e-2)


def by_hand(net: nn.Module) -> None:
    for p in net.parameters():
        p.grad = p.grad * 0.25


def nothing(net: nn.Module) -> None:
    pass


def above(net: nn.Module) -> None:
    nn.utils.clip_grad_norm_(net.parameters(), 1e6)


@pytest.mark.parametrize("clip", [norm, value, by_hand, nothing, above])
@pytest.mark.parametrize("calls", [1, 3])
@pytest.mark.parametrize("to_none", [True, False])
def test_clipped_gradients(clip: Any, calls: int, to_none: bool) -> None:
    net = model()

    def script(tell: Any) -> None:
        optimizer = torch.optim.AdamW(net.parameters(), 1e-2)
        for _ in range(7):
            optimizer.zero_grad(set_to_none=to_none)
            for _ in range(calls):
                (net(torch.randn(16, 4)).square().mean() / calls).backward()
            tell(net.parameters())
            clip(net)
            tell(net.parameters())
            optimizer.step()

    found, plain = seen(script)
    # In the first step no scaler would be known.
    assert found.curve("clip_factor", "AdamW") == [(step, pytest.approx(plain[step], rel=1e-5)) for step in (2, 4, 6)]
    if clip in (nothing, above):
        assert [v for _, v in found.curve("clip_factor", "AdamW")] == [1.0] * 3
    else:
        assert plain[2] < 0.9


class Unscales(torch.optim.SGD):
    """As fused optimizers do: it divides the scale out itself."""

    _step_supports_amp_scaling = True

    def step(self, closure: Any = None) -> Any:
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None and not self.found_inf:
                    p.data.sub_(p.grad / self.grad_scale, alpha=group["lr"])


@pytest.mark.parametrize(("kind", "clips"), [(torch.optim.SGD, True), (torch.optim.SGD, False), (Unscales, False)])
def test_a_scale_is_no_clipping(kind: Any, clips: bool) -> None:
    net, scale = model(), 2.0**12
    optimizer = kind(net.parameters(), 1e-2)
    scaler = torch.amp.GradScaler("cpu", init_scale=scale)

    def script(tell: Any) -> None:
        for _ in range(5):
            optimizer.zero_grad()
            for _ in range(2):
                scaler.scale(net(torch.randn(16, 4)).square().mean() / 2).backward()
            if clips:
                scaler.unscale_(optimizer)
                tell(net.parameters())
                norm(net)
                tell(net.parameters())
            scaler.step(optimizer)
            scaler.update()

    found, plain = seen(script)
    expected = [plain[step] if clips else 1.0 for step in (2, 4)]
    assert [v for _, v in found.curve("clip_factor", kind.__name__)] == pytest.approx(expected, rel=1e-5)


def test_a_hidden_scale_is_not_reported_as_clipping() -> None:
    net = model()
    optimizer = torch.optim.SGD(net.parameters(), 1e-2)
    scaler = torch.amp.GradScaler("cpu")

    def script(tell: Any) -> None:
        for _ in range(5):
            optimizer.zero_grad()
            (scaler.scale(net(torch.randn(16, 4)).square().mean()) / 2).backward()
            scaler.step(optimizer)
            scaler.update()

    found, _ = seen(script)
    assert found.names("grad_norm") and not found.names("clip_factor")


@pytest.mark.parametrize("turns", [False, True])
def test_several_optimizers_have_one_each(turns: bool) -> None:
    nets = [model(), model()]
    optimizers = [torch.optim.SGD(net.parameters(), 1e-2) for net in nets]
    plain: list[dict[int, float]] = [{}, {}]

    def step(which: list[int], at: int) -> None:
        for i in which:
            optimizers[i].zero_grad()
        sum(nets[i](torch.randn(16, 4)).square().mean() for i in which).backward()
        for i in which:
            before = length(nets[i].parameters())
            nn.utils.clip_grad_norm_(nets[i].parameters(), 0.1 * (i + 1))
            plain[i][at] = length(nets[i].parameters()) / before
        for i in which:
            optimizers[i].step()

    def script(tell: Any) -> None:
        for at in range(13):
            step([at % 2] if turns else [0, 1], at)

    found, _ = seen(script, every=4)
    for i, name in enumerate(("SGD", "SGD#2")):
        curve = found.curve("clip_factor", name)
        assert [at for at, _ in curve] == ([4 + i, 8 + i, 12 + i][: 3 - i] if turns else [4, 8, 12])
        assert dict(curve) == pytest.approx({at: plain[i][at] for at, _ in curve}, rel=1e-5)
        assert all(v < 1 for _, v in curve)
    assert set(found.names("lr")) == {"SGD", "SGD#2"}


def test_a_call_without_gradients_for_the_optimizer_does_not_hide_clipping() -> None:
    nets = [model(), model()]

    def script(tell: Any) -> None:
        optimizer = torch.optim.SGD(nets[0].parameters(), 1e-2)
        for _ in range(3):
            optimizer.zero_grad()
            nets[0](torch.randn(16, 4)).square().mean().backward()
            tell(nets[0].parameters())
            norm(nets[0])
            nets[1](torch.randn(16, 4)).square().mean().backward()
            tell(nets[0].parameters())
            optimizer.step()

    found, plain = seen(script)
    assert found.curve("clip_factor", "SGD") == [(2, pytest.approx(plain[2], rel=1e-5))]


def given(net: Any, optimizer: Any) -> None:
    """Without a backward that adds up."""
    grads = torch.autograd.grad(net(torch.randn(16, 4)).square().mean(), [*net.parameters()])
    for p, grad in zip(net.parameters(), grads, strict=True):
        p.grad = grad
    optimizer.step()


def closure(net: Any, optimizer: Any) -> None:
    def again() -> torch.Tensor:
        optimizer.zero_grad()
        loss: torch.Tensor = net(torch.randn(16, 4)).square().mean()
        loss.backward()
        return loss

    optimizer.step(again)


def fails(net: Any, optimizer: Any) -> None:
    optimizer.zero_grad()
    net(torch.randn(16, 4)).square().mean().backward()
    out = net(torch.randn(16, 4))
    out.register_hook(lambda grad: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        out.square().mean().backward()
    optimizer.step()


@pytest.mark.parametrize("step", [given, closure, fails])
def test_an_unknown_clipping_is_not_reported(step: Any) -> None:
    net = model()

    def script(tell: Any) -> None:
        optimizer = torch.optim.SGD(net.parameters(), 1e-2)
        for _ in range(5):
            step(net, optimizer)

    found, _ = seen(script)
    assert found.steps == [0, 2, 4]
    assert not found.names("clip_factor")


def test_a_second_step_on_the_same_gradients_is_not_measured() -> None:
    net = model()
    optimizer = torch.optim.SGD(net.parameters(), 1e-2)

    def script(tell: Any) -> None:
        for _ in range(4):
            optimizer.zero_grad()
            net(torch.randn(16, 4)).square().mean().backward()
            optimizer.step()
            norm(net)
            optimizer.step()

    found, _ = seen(script, every=1)
    assert {v for _, v in found.curve("clip_factor", "SGD")} == {1.0}


def test_a_budget_in_whose_steps_calls_pass() -> None:
    net = nn.Linear(4, 4)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    session, sink = watched(Settings("nodes", budget=0.01, layer_stats=10))
    session.start()
    ratios = []
    for _ in range(1000):
        optimizer.zero_grad()
        net(torch.randn(16, 4)).square().sum().backward()
        before = length(net.parameters())
        nn.utils.clip_grad_norm_(net.parameters(), 0.1)
        ratios.append(length(net.parameters()) / before)
        optimizer.step()
    session.stop()
    assert session.error is None
    trace = sink.trace(session)
    assert session.budget.steps_without_record + session.budget.deferred_records
    curve = trace.statistics.curve("clip_factor", "SGD")
    assert curve[-1][0] > 100
    assert [v for _, v in curve] == pytest.approx([ratios[step] for step, _ in curve], rel=1e-5)


def hidden(net: nn.Module) -> None:
    for p in net.parameters():
        p.grad.data.mul_(0.5)  # changes no version


@pytest.mark.parametrize("clip", [norm, hidden, above, nothing])
def test_unmodified_gradients_are_measured_in_one_of_four_measurements_until_modified(clip: Any) -> None:
    net, begins, steps = model(), 21, 60

    def script(tell: Any) -> None:
        optimizer = torch.optim.SGD(net.parameters(), 1e-3)
        for step in range(steps):
            optimizer.zero_grad()
            net(torch.randn(16, 4)).square().mean().backward()
            tell(net.parameters())
            if step >= begins:
                clip(net)
            tell(net.parameters())
            optimizer.step()

    found, plain = seen(script, every=1)
    curve = found.curve("clip_factor", "SGD")
    assert curve == [(step, pytest.approx(plain[step], rel=1e-5)) for step, _ in curve]
    at = [step for step, _ in curve]
    assert [len(found.names(quantity)) for quantity in ("grad_norm", "update_norm")] == [4, 4]
    untouched = [step for step in at if step < begins]
    assert untouched[:3] == list(range(untouched[0], untouched[0] + 3))
    assert untouched[4:] == list(range(untouched[4], begins, 4))
    after = [step for step in at if step >= begins]
    if clip is nothing:
        assert after == list(range(untouched[-1] + 4, steps, 4))
    else:
        assert begins <= after[0] < begins + 4
        assert after == list(range(after[0], steps))
