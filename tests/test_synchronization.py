"""No step waits for an accelerator but in the batched fetch: Note [Nothing waits]. The CPU stands in for one."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from types import FunctionType

import pytest
import torch
from accelerator import WaitedError, Waits, stand_in
from torch import nn
from torch.nn import functional as F

from backprobe.observe.backward.pending_call_record import PendingCallRecord
from backprobe.observe.schedule import budget as budgets
from backprobe.observe.schedule import samples
from backprobe.observe.session import Session, Settings
from backprobe.records import Measured, Step
from backprobe.torch_internals import async_scalars, measure

STEPS, WARM_UP = 12, 6
Train = Callable[[], None]


def network(norm: bool = False) -> nn.Sequential:
    torch.manual_seed(0)
    layers: list[nn.Module] = [nn.Linear(8, 16), nn.ReLU(inplace=True), nn.Linear(16, 4)]
    if norm:
        layers.insert(1, nn.BatchNorm1d(16))
    return nn.Sequential(*layers)


def batch() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(6, 8), torch.randint(0, 4, (6,))


def plain() -> Train:
    net, (x, y) = network(norm=True), batch()
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)

    def step() -> None:
        optimizer.zero_grad()
        F.cross_entropy(net((x - x.mean()) / x.std()), y).backward()
        optimizer.step()

    return step


def large() -> Train:
    """Results, gradients and parameters of more elements than are measured in batches, and one in half precision."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(128, 128), nn.GELU(), nn.Linear(128, 128)).to(torch.bfloat16)
    optimizer, x = torch.optim.SGD(net.parameters(), lr=1e-6), torch.randn(64, 128, dtype=torch.bfloat16)

    def step() -> None:
        optimizer.zero_grad()
        net(x).float().square().mean().backward()
        optimizer.step()

    return step


def scaled() -> Train:
    net, (x, y) = network(), batch()
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)

    def step() -> None:
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = F.cross_entropy(net(x), y)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()

    return step


def accumulating() -> Train:
    net, (x, y) = network(), batch()
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)

    def step() -> None:
        optimizer.zero_grad()
        for part, label in zip(x.split(2), y.split(2), strict=True):
            (F.cross_entropy(net(part), label) / 3).backward()
        optimizer.step()

    return step


def clipped() -> Train:
    net, (x, y) = network(), batch()
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-2, momentum=0.9)

    def step() -> None:
        optimizer.zero_grad()
        F.cross_entropy(net(x), y).backward()
        nn.utils.clip_grad_norm_(net.parameters(), 0.1)
        optimizer.step()

    return step


def two_optimizers() -> Train:
    critic, maker, (x, _) = network(), nn.Linear(8, 8), batch()
    first = torch.optim.AdamW(critic.parameters(), lr=1e-3)
    second = torch.optim.AdamW(maker.parameters(), lr=1e-3)

    def step() -> None:
        first.zero_grad()
        (critic(maker(x).detach()).mean() - critic(x).mean()).backward()
        first.step()
        second.zero_grad()
        critic(maker(x)).square().mean().backward()
        second.step()

    return step


def with_gradients_given() -> Train:
    """Roots that are no numbers, and a penalty on a gradient."""
    net, (x, _) = network(), batch()
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-2)
    inputs = x.requires_grad_()

    def step() -> None:
        optimizer.zero_grad()
        out = net(inputs)
        (slope,) = torch.autograd.grad(out.sum(), inputs, create_graph=True)
        slope.square().mean().backward()
        net(x).backward(torch.ones(6, 4))
        optimizer.step()

    return step


SCENARIOS = (plain, large, scaled, accumulating, clipped, two_optimizers, with_gradients_given)
SETTINGS = {
    "every step": Settings(),
    "minimal": Settings(level="minimal"),
    "statistics": Settings(budget=1e-9, layer_stats=2),
    "unrecorded": Settings(budget=1e-9),
}


class Sink:
    """Counts what it is handed."""

    def __init__(self) -> None:
        self.calls = self.looks = 0
        self.steps: list[Step] = []

    def backward(self, recorded: PendingCallRecord) -> None:
        self.calls += 1

    def step(self, step: Step, session: Session) -> None:
        self.steps.append(step)

    def measured(self, measured: Measured) -> None:
        self.looks += 1


def watched(make: Callable[[], Train], settings: Settings, raises: bool = True) -> tuple[Waits, Sink, Sink]:
    """Return the waits after the warm-up steps, and what sinks got in those steps and in the whole run."""
    train, whole = make(), Sink()
    session = Session(whole, settings)
    session.start()
    for _ in range(WARM_UP):  # the first steps are inspected closely: each op may fetch
        train()
    calls, looks = whole.calls, whole.looks
    with stand_in(raises) as waits:
        for _ in range(STEPS):
            train()
    meanwhile = Sink()
    meanwhile.calls, meanwhile.looks = whole.calls - calls, whole.looks - looks
    session.stop()
    assert session.error is None, repr(session.error)
    return waits, meanwhile, whole


def spend_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """No step is recorded but the first three, and those that trouble asks for."""
    monkeypatch.setattr(budgets, "FREE_SECONDS", 0.0)
    monkeypatch.setattr(budgets, "MAX_STEPS_BETWEEN_RECORDED", 10**9)
    monkeypatch.setattr(budgets, "UNRECORDED_STEP_FRACTION", math.inf)


def of_calls(waits: Waits) -> list[str]:
    """The fetches that belong to backward calls, without those for a suspicion or in a close inspection."""
    others = (":_check_op ", ":joint_norm ", ":_filter_by ", ":number_read ")
    return [fetch for fetch in waits.fetches if not any(name in f"{fetch} " for name in others)]


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("make", SCENARIOS, ids=lambda make: make.__name__)
def test_nothing_waits_outside_the_fetch(
    make: Callable[[], Train], setting: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if SETTINGS[setting].budget is not None:
        spend_nothing(monkeypatch)
    waits, meanwhile, whole = watched(make, SETTINGS[setting])
    assert waits.calls == []
    # Before a recorded call for its forward, after it for its gradients; and once a look at statistics.
    assert len(of_calls(waits)) <= 2 * meanwhile.calls + meanwhile.looks + 1, Counter(of_calls(waits))
    assert len(whole.steps) >= WARM_UP + STEPS


@pytest.fixture
def always_sampled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Norms of parameters are taken in every step, whatever they cost."""
    monkeypatch.setattr(samples.Samples, "is_due", lambda self, step, sampled_step: True)


@pytest.mark.usefixtures("always_sampled")
@pytest.mark.parametrize("make", SCENARIOS, ids=lambda make: make.__name__)
def test_records_equal_those_on_the_host(make: Callable[[], Train], monkeypatch: pytest.MonkeyPatch) -> None:
    waits, _, away = watched(make, Settings())
    assert waits.calls == [] and waits.fetches
    monkeypatch.setattr("test_synchronization.stand_in", lambda raises: nullcontext(Waits()))
    _, _, here = watched(make, Settings())
    assert away.calls == here.calls and len(away.steps) == len(here.steps)
    for mine, other in zip(away.steps, here.steps, strict=True):
        assert mine.loss == (None if other.loss is None else pytest.approx(other.loss, rel=1e-5))
        assert mine.clip_norm == (None if other.clip_norm is None else pytest.approx(other.clip_norm, rel=1e-5))
        assert [p.name for p in mine.parameters] == [p.name for p in other.parameters]
        for one, same in zip(mine.parameters, other.parameters, strict=True):
            for number in ("weight", "grad", "update"):
                expected = getattr(same, number)
                assert getattr(one, number) == (None if expected is None else pytest.approx(expected, rel=1e-3))
    assert any(step.clip_norm is not None for step in away.steps) == (make in (scaled, clipped))
    assert any(p.update is not None for step in away.steps[WARM_UP:] for p in step.parameters)


def test_nothing_is_read_while_a_graph_is_captured(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (measure, async_scalars):
        monkeypatch.setattr(module, "capturing", lambda: True)
    numbers, told = async_scalars.Later(), []
    with stand_in() as waits:
        norms = measure.Norms()
        slot = norms.now(torch.ones(3))
        norms.flush()
        numbers.add(torch.tensor(1.0), told.append)
        numbers.flush()
    assert waits.fetches == [] and slot in norms.unmeasured and told == []
    monkeypatch.undo()
    numbers.flush()
    assert told == [1.0]


@pytest.mark.parametrize(
    "read",
    [
        lambda t: t.sum().item(),
        lambda t: bool(t.any()),
        lambda t: t.tolist(),
        lambda t: t[t > 0],
        lambda t: t.nonzero(),
        lambda t: torch.equal(t, t),
        lambda t: t.cpu(),
        lambda t: t.to("cpu"),
        lambda t: t.numpy(),
        lambda t: torch.allclose(t, t),
    ],
)
def test_the_simulated_accelerator_raises_on_waiting_calls(read: Callable[[torch.Tensor], object]) -> None:
    """A function that is compiled as if it stood in the product: what it reads is the product's."""
    t, code = torch.ones(3), read.__code__
    read = FunctionType(code.replace(co_filename=str(Path(measure.__file__))), {"torch": torch, "bool": bool})
    with stand_in() as waits, pytest.raises(WaitedError):
        read(t)
    assert len(waits.calls) == 1
    assert t.sum().item() == 3.0 and t.is_cpu
