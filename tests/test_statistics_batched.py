"""Statistics of many layers computed in one operation: each layer has its own values, in its place."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from watching import watched

from backprobe.observe.session import Settings
from backprobe.observe.statistics.numbers import FRACTION_SAMPLES, UPDATE_SAMPLES, Numbers, count_zeros, sample_spacing
from backprobe.observe.statistics.outputs import MAX_WAITING_OUTPUTS
from backprobe.observe.statistics.parameters import Parameters
from backprobe.traces import Statistics


class Odd(nn.Module):
    """Parameters with as many elements in several shapes and layouts, between others."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(24))
        self.first, self.tall = nn.Linear(4, 6), nn.Parameter(torch.randn(12, 2))
        self.turned = nn.Parameter(torch.randn(6, 4).t())
        self.conv = nn.Conv2d(4, 6, 1).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.large = nn.Parameter(torch.randn(150, 150) / 150)

    def forward(self, x: torch.Tensor, tall: bool = True) -> torch.Tensor:
        out = self.first(x) @ self.turned.t()
        out = out * self.scale.view(6, 4).sum(0) + (self.tall.sum() if tall else 0.0)
        return self.conv(out[:, :, None, None]).sum() ** 2 + (self.large**3).sum() + self.large[0].square().sum()


def table(found: Statistics) -> list[dict[str, float]]:
    return [dict(zip(one.names, one.values, strict=True)) for one in found]


@pytest.mark.parametrize("make", [lambda p: torch.optim.SGD(p, 1e-5), lambda p: torch.optim.AdamW(p, 1e-2)])
def test_each_parameter_has_its_own(make: Any) -> None:
    torch.manual_seed(0)
    net = Odd()
    names = [name for name, _ in net.named_parameters()]
    optimizer = make(net.parameters())
    wanted: list[dict[str, float]] = []
    session, sink = watched(Settings("minimal", layer_stats=1))
    session.start()
    for step in range(4):
        optimizer.zero_grad()
        net(torch.randn(5, 4), tall=step != 1).backward()
        before = {name: p.detach().clone() for name, p in net.named_parameters()}
        optimizer.step()
        row: dict[str, float] = {}
        for name, p in net.named_parameters():
            if p.grad is None:
                continue
            apart = sample_spacing(p.numel(), UPDATE_SAMPLES)
            moved = (p.detach() - before[name]).flatten()[::apart].double()
            row[f"update_norm|{name}"] = float(moved.norm()) * math.sqrt(p.numel() / moved.numel())
            further = sample_spacing(moved.numel(), FRACTION_SAMPLES)
            grad, less = p.grad.flatten()[::apart][::further].double(), moved[::further]
            row[f"grad_norm|{name}"] = float(p.grad.double().norm())
            row[f"grad_zeros|{name}"] = float((grad == 0).double().mean())
            row[f"unchanged|{name}"] = float((less[grad != 0] == 0).sum() / (grad != 0).sum().clamp(min=1))
            if state := optimizer.state.get(p):
                second = state["exp_avg_sq"].flatten()[::apart][::further].double() / (
                    1 - 0.999 ** float(state["step"])
                )
                row[f"adam_ratio|{name}"] = float((grad.square() / second.clamp(min=1e-16)).mean().sqrt())
        wanted.append(row)
    session.stop()
    assert session.error is None
    found = table(sink.trace(session).statistics)
    assert len(found) == 4
    for got, row in zip(found, wanted, strict=True):
        assert {name: got[name] for name in row} == pytest.approx(row, rel=2e-4, abs=1e-7)
        for quantity in {key.partition("|")[0] for key in row}:
            told = [name.partition("|")[2] for name in got if name.startswith(f"{quantity}|")]
            assert told == [name for name in names if f"{quantity}|{name}" in row]
    assert "grad_norm|tall" not in found[1]


class Writes(nn.Module):
    """Multiplies the output of a layer in place if `on`."""

    def __init__(self) -> None:
        super().__init__()
        self.on = False

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.mul_(2.0) if self.on else x * 2.0


class Deep(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(MAX_WAITING_OUTPUTS + 3))
        self.middle, self.relu, self.writes = nn.Linear(4, 4), nn.ReLU(inplace=True), Writes()
        self.last = nn.Linear(4, 300)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = torch.tanh(layer(x))
        return self.last(self.writes(self.relu(self.middle(x)).clone()))


def test_pending_outputs_are_those_of_the_modules() -> None:
    torch.manual_seed(0)
    net = Deep()
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    wanted: list[dict[str, float]] = [{} for _ in range(12)]
    at = [0]
    for name, module in net.named_modules():
        if name and not isinstance(module, nn.ModuleList):

            def note(module: Any, args: Any, out: Any, name: str = name) -> None:
                wanted[at[0]][f"activation_rms|{name}"] = float(out.detach().double().square().mean().sqrt())
                wanted[at[0]][f"activation_max|{name}"] = float(out.detach().abs().max())

            module.register_forward_hook(note)
    session, sink = watched(Settings("minimal", layer_stats=1))
    session.start()
    for step in range(12):
        at[0], net.writes.on = step, step >= 3
        optimizer.zero_grad()
        net(torch.randn(5, 4)).square().mean().backward()
        optimizer.step()
    session.stop()
    assert session.error is None
    found = table(sink.trace(session).statistics)
    assert len(found) == 12
    for step, (got, row) in enumerate(zip(found, wanted, strict=True)):
        told = {name: got[name] for name in row if name in got}
        assert told == pytest.approx({name: row[name] for name in told}, rel=1e-5)
        maxima = [name for name in told if name.startswith("activation_max|")]
        assert len(maxima) == (len(told) // 2 if step % 10 == 0 else 0)
        assert len(told) - len(maxima) >= len(row) // 2 - 2


class Chain(nn.Module):
    """A layer whose output the next one writes into, from a call on."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two, self.after, self.inplace = nn.Linear(4, 4), nn.Linear(4, 4), Writes(), False

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.after.on = self.inplace
        return self.two(self.after(self.one(x)))


def test_an_output_that_is_written_to_unlike_before_has_no_number_once() -> None:
    torch.manual_seed(0)
    net = Chain()
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    wanted = []
    net.one.register_forward_hook(lambda module, args, out: wanted.append(float(out.detach().square().mean().sqrt())))
    session, sink = watched(Settings("minimal", layer_stats=1))
    session.start()
    for step in range(6):
        net.inplace = step >= 2
        optimizer.zero_grad()
        net(torch.randn(5, 4)).square().mean().backward()
        optimizer.step()
    session.stop()
    assert session.error is None
    found = [row.get("activation_rms|one") for row in table(sink.trace(session).statistics)]
    assert found[2] is None
    assert found[:2] + found[3:] == pytest.approx(wanted[:2] + wanted[3:])


def test_units_of_layers_of_different_widths() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 5), nn.ReLU(), nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 1)
    )
    with torch.no_grad():
        for at, dead in ((0, 3), (2, 1), (4, 8)):
            net[at].bias[:dead] = -50.0  # type: ignore[union-attr, index]
            net[at].bias[dead:] = 50.0  # type: ignore[union-attr, index]
    optimizer = torch.optim.SGD(net.parameters(), 0.0)
    session, sink = watched(Settings("minimal", layer_stats=1))
    session.start()
    F.mse_loss(net(torch.randn(6, 4)), torch.zeros(6, 1)).backward()
    optimizer.step()
    session.stop()
    (got,) = table(sink.trace(session).statistics)
    told = {name: value for name, value in got.items() if name.startswith("dead|")}
    assert told == pytest.approx({"dead|0": 3 / 8, "dead|2": 1 / 5, "dead|4": 1.0})
    assert count_zeros([torch.tensor([0.0, 1.0]), torch.zeros(3)]).tolist() == [1, 3]


def test_deferred_reads_keep_no_layer_alive() -> None:
    """An accelerator's numbers are read at the next measured step; until then no layer stays referenced."""
    p = nn.Parameter(torch.randn(40, 40))
    optimizer = torch.optim.AdamW([p], 0.1)
    p.grad = torch.randn(40, 40)
    numbers = Numbers()
    mine = Parameters(optimizer, "AdamW", numbers, lambda p: "p")
    mine.measure_before_step()
    optimizer.step()
    mine.measure_after_step()
    numbers.send()
    held, seen = [numbers], set()
    for one in held:  # grows as we go
        if id(one) in seen:
            continue
        seen.add(id(one))
        assert not isinstance(one, torch.Tensor) or one.numel() < 40
        parts = [*vars(one).values()] if hasattr(one, "__dict__") else []
        parts += [*one.values()] if isinstance(one, dict) else []
        parts += [*one] if isinstance(one, (list, tuple)) else []
        parts += [one.__self__] if hasattr(one, "__self__") and not isinstance(one, torch.Tensor) else []
        parts += [*one.args, one.func] if type(one).__name__ == "partial" else []
        held += [part for part in parts if part is not None and not isinstance(part, (type, str, int, float))]
    assert numbers.read()["adam_ratio"]["p"] > 0
