"""Layer statistics, each compared with a direct computation."""

from __future__ import annotations

import copy
import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from watching import watched

import backprobe
from backprobe.observe.backward.pending_call_record import PendingCallRecord
from backprobe.observe.session import Session, Settings
from backprobe.observe.sinks.memory import Collector
from backprobe.records import Measured
from backprobe.traces import Statistics


def model() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 2))


def rms(t: Any) -> float:
    return float(t.double().square().mean().sqrt())


class Plain:
    """The plain way: what an optimizer meets and does, step by step, noted around its ``step``."""

    def __init__(self, named: dict[str, Any], optimizer: Any, scale: float = 1.0) -> None:
        self.rows: list[dict[tuple[str, str], float]] = []
        inner = optimizer.step

        def step(*args: Any, **kwargs: Any) -> Any:
            row: dict[tuple[str, str], float] = {}
            before = {name: p.detach().clone().double() for name, p in named.items()}
            grads = {name: p.grad.detach().clone().double() / scale for name, p in named.items() if p.grad is not None}
            for name, g in grads.items():
                row["weight_norm", name] = float(before[name].norm())
                row["weight_rms", name] = rms(before[name])
                row["grad_norm", name] = float(g.norm())
                if len(self.rows) == 0:
                    row["grad_max", name] = float(g.abs().max())
                row["grad_zeros", name] = float((g == 0).double().mean())
                row["grad_nonfinite", name] = float((~g.isfinite()).double().mean())
            out = inner(*args, **kwargs)
            for name, g in grads.items():
                moved = named[name].detach().double() - before[name]
                row["update_rms", name] = rms(moved)
                if row["weight_norm", name]:
                    row["update_ratio", name] = float(moved.norm()) / row["weight_norm", name]
                there = g != 0
                row["unchanged", name] = float(((moved == 0) & there).sum() / there.sum().clamp(min=1))
                state = optimizer.state.get(named[name], {})
                if "exp_avg_sq" in state:
                    second = state["exp_avg_sq"].double() / (1 - 0.999 ** float(state["step"]))
                    row["adam_ratio", name] = float((g.square() / second.clamp(min=1e-16)).mean().sqrt())
            self.rows.append(row)
            return out

        optimizer.step = step


def same(found: Statistics, plain: Plain, tolerance: float = 1e-4) -> None:
    """All that the plain way knows is in `found`, in each step that was measured."""
    assert len(found)
    for one in found:
        expected = plain.rows[one.step]
        got = dict(zip(one.names, one.values, strict=True))
        assert expected
        for (quantity, name), value in expected.items():
            assert got[f"{quantity}|{name}"] == pytest.approx(value, rel=tolerance, abs=1e-7), (quantity, name)


def trained(net: nn.Module, make: Any, steps: int = 7, every: int = 3, **how: Any) -> Any:
    """Steps of a plain loop, watched; the statistics."""
    session, sink = watched(Settings("nodes", layer_stats=every))
    session.start()
    optimizer = make(net.parameters())
    plain = Plain(dict(net.named_parameters()), optimizer)
    for _ in range(steps):
        loop(net, optimizer, **how)
    session.stop()
    assert session.error is None
    return sink.trace(session).statistics, plain


def loop(net: Any, optimizer: Any, accumulate: int = 1, clip: float | None = None, dtype: Any = torch.float32) -> None:
    optimizer.zero_grad()
    for _ in range(accumulate):
        (net(torch.randn(16, 4, dtype=dtype)).float().square().mean() / accumulate).backward()
    if clip is not None:
        nn.utils.clip_grad_norm_(net.parameters(), clip)
    optimizer.step()


@pytest.mark.parametrize(
    "make",
    [
        lambda p: torch.optim.SGD(p, 0.1, momentum=0.9),
        lambda p: torch.optim.AdamW(p, 1e-2),
        lambda p: torch.optim.Adam(p, 1e-2, weight_decay=0.1, foreach=False),
        lambda p: torch.optim.AdamW(p, 1e-2, fused=True),
        lambda p: torch.optim.RMSprop(p, 1e-3),
    ],
)
def test_parameters_gradients_and_updates_are_as_the_plain_way_has_them(make: Any) -> None:
    net = model()
    found, plain = trained(net, make)
    assert found.steps == [0, 3, 6]
    same(found, plain)


@pytest.mark.parametrize("how", [{"accumulate": 3}, {"clip": 1e-3}, {"accumulate": 2, "clip": 0.1}])
def test_accumulated_and_clipped_gradients_are_those_that_the_optimizer_meets(how: Any) -> None:
    net = model()
    same(*trained(net, lambda p: torch.optim.AdamW(p, 1e-2), **how))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_updates_of_half_precision_weights_are_not_rounded(dtype: Any) -> None:
    """With weights of 1 and a rate of 1e-3 most weights do not change; those that do have their true update."""
    net = nn.Linear(4, 8).to(dtype)
    nn.init.constant_(net.weight, 1.0)
    found, plain = trained(net, lambda p: torch.optim.SGD(p, 1e-3), dtype=dtype)
    same(found, plain)
    assert max(v for _, v in found.curve("unchanged", "weight")) > 0.5


class Unscales(torch.optim.SGD):
    """As fused optimizers do: it divides the scale out itself."""

    _step_supports_amp_scaling = True

    def step(self, closure: Any = None) -> Any:
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None and not self.found_inf:
                    p.data.sub_(p.grad / self.grad_scale, alpha=group["lr"])


@pytest.mark.parametrize("kind", [torch.optim.SGD, Unscales])
def test_under_a_scaler_gradients_are_without_the_scale(kind: Any) -> None:
    net, scale = model(), 2.0**12
    optimizer = kind(net.parameters(), 1e-2)
    plain = Plain(dict(net.named_parameters()), optimizer, scale if kind is Unscales else 1.0)
    scaler = torch.amp.GradScaler("cpu", init_scale=scale)
    session, sink = watched(Settings("nodes", layer_stats=2))
    session.start()
    for _ in range(5):
        optimizer.zero_grad()
        scaler.scale(net(torch.randn(16, 4)).square().mean()).backward()
        scaler.step(optimizer)
        scaler.update()
    session.stop()
    assert session.error is None
    found = sink.trace(session).statistics
    same(found, plain)
    assert [v for _, v in found.curve("loss_scale", "GradScaler")][-1] == scale


def test_optimizers_that_take_turns_are_both_measured() -> None:
    nets = [nn.Linear(4, 4), nn.Linear(4, 4)]
    optimizers = [torch.optim.SGD(net.parameters(), 0.1) for net in nets]
    session, sink = watched(Settings("minimal", layer_stats=4))
    session.start()
    for at in range(16):
        loop(nets[at % 2], optimizers[at % 2])
    session.stop()
    assert session.error is None
    found = sink.trace(session).statistics
    assert found.steps == [0, 1, 4, 5, 8, 9, 12, 13]
    assert all(len([name for name in one.names if name.startswith("update_rms")]) == 2 for one in found)


def test_optimizers_of_one_step_are_measured_in_one_record() -> None:
    net = model()
    halves = [torch.optim.SGD(net[:2].parameters(), 0.1), torch.optim.AdamW(net[2:].parameters(), 0.3)]
    session, sink = watched(Settings("minimal", layer_stats=2))
    session.start()
    for _ in range(5):
        net(torch.randn(3, 4)).sum().backward()
        for optimizer in halves:
            optimizer.step()
    session.stop()
    found = sink.trace(session).statistics
    assert found.steps == [0, 2, 4]
    assert all(len(found.curve("grad_norm", name)) == 3 for name, _ in net.named_parameters())
    assert {name: v for name in found.names("lr") for _, v in found.curve("lr", name)} == pytest.approx(
        {"SGD": 0.1, "AdamW": 0.3}
    )


def test_shared_frozen_and_hooked_parameters() -> None:
    """A shared parameter is reported once, a frozen one never, one that its hook steps by its own optimizer."""
    net = model()
    net[4].weight.requires_grad_(False)
    net.again = net[2]
    own = torch.optim.SGD([net[0].weight], 0.1)

    def steps_at_once(p: Any) -> None:
        own.step()
        p.grad = None

    net[0].weight.register_post_accumulate_grad_hook(steps_at_once)
    rest = torch.optim.SGD([p for p in net.parameters() if p is not net[0].weight], 0.1)
    session, sink = watched(Settings("minimal", layer_stats=1))
    session.start()
    for _ in range(4):
        loop(net[:5], rest)
    session.stop()
    assert session.error is None
    names = sink.trace(session).statistics.names("update_norm")
    assert len(names) == len(set(names)) == 5
    assert any(name.endswith("0.weight") for name in names)


def test_bad_gradients_are_counted() -> None:
    net = nn.Linear(4, 4)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    session, sink = watched(Settings("minimal", layer_stats=1))
    session.start()
    net(torch.randn(3, 4)).sum().backward()
    assert net.weight.grad is not None
    net.weight.grad[0, :2] = torch.tensor([math.nan, math.inf])
    optimizer.step()
    session.stop()
    (one,) = sink.trace(session).statistics
    got = dict(zip(one.names, one.values, strict=True))
    assert got["grad_nonfinite|weight"] == pytest.approx(2 / 16)
    assert math.isnan(got["grad_norm|weight"])


class Attends(nn.Module):
    def __init__(self, fused: bool) -> None:
        super().__init__()
        self.fused, self.qkv = fused, nn.Linear(8, 24)

    def parts(self, x: torch.Tensor) -> list[torch.Tensor]:
        return [t.unflatten(-1, (2, 4)).transpose(1, 2) for t in self.qkv(x).chunk(3, -1)]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.parts(x)
        if self.fused:
            return F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)
        later = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1)
        weights = ((q @ k.transpose(-2, -1)) / 2.0).masked_fill(later, -math.inf).softmax(-1)
        return (weights @ v).transpose(1, 2).flatten(2)


class Net(nn.Module):
    def __init__(self, fused: bool) -> None:
        super().__init__()
        self.inside, self.attends, self.up = nn.Linear(4, 8), Attends(fused), nn.Linear(8, 6)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.sigmoid(torch.relu(self.up(torch.tanh(9 * self.attends(self.inside(x))))))


@pytest.mark.parametrize("fused", [True, False])
def test_activations_and_attention(fused: bool) -> None:
    torch.manual_seed(0)
    net = Net(fused)
    nn.init.constant_(net.up.bias, -0.6)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    expected: list[dict[str, float]] = []
    session, sink = watched(Settings("minimal", layer_stats=2))
    session.start()
    past = []
    for _ in range(5):
        x = torch.randn(3, 7, 4)
        past.append((x, copy.deepcopy(net)))
        optimizer.zero_grad()
        net(x).square().mean().backward()
        optimizer.step()
    session.stop()
    for x, twin in past:
        with torch.no_grad():
            inside = twin.inside(x)
            q, k, _ = twin.attends.parts(inside)
            logits = q @ k.transpose(-2, -1) / 2
            p = logits.masked_fill(torch.ones(7, 7, dtype=torch.bool).triu(1), -math.inf).softmax(-1)
            tanh = torch.tanh(9 * twin.attends(inside))
            relu = torch.relu(twin.up(tanh))
            expected.append(
                {
                    "activation_rms|inside": rms(inside),
                    "activation_max|inside": float(inside.abs().max()),
                    "activation_rms|up": rms(twin.up(tanh)),
                    "attention_logit|attends": float(logits.max()),
                    "attention_entropy|attends": float(-torch.special.xlogy(p, p).sum(-1).mean()),
                    "dead|up": float((relu.flatten(0, 1) == 0).all(0).double().mean()),
                    "saturated|Net": float((tanh.abs() > 0.99).double().mean()),
                }
            )
    assert session.error is None
    found = sink.trace(session).statistics
    assert found.steps == [0, 2, 4]
    for one in found:
        got = dict(zip(one.names, one.values, strict=True))
        wanted = expected[one.step]  # not of the sigmoid, which is what the model puts out
        if one.step:
            del wanted["activation_max|inside"]  # of one look in ten
            assert not any(name.startswith("activation_max|") for name in got)
        assert {name: got[name] for name in wanted} == pytest.approx(wanted, rel=1e-4, abs=1e-6)


def test_saturated_units_belong_to_the_module_that_outputs_them() -> None:
    net = model()
    net[2].weight.data.mul_(100)
    found, _ = trained(net, lambda p: torch.optim.SGD(p, 0.0), steps=1)
    ((_, share),) = found.curve("saturated", "2")
    assert 0.5 < share <= 1.0


def test_each_step_has_activations_at_a_cadence_of_one() -> None:
    found, _ = trained(model(), lambda p: torch.optim.SGD(p, 0.1), steps=5, every=1)
    assert [step for step, _ in found.curve("activation_rms", "0")] == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("every", [1, 3])
def test_a_compiled_model_is_not_compiled_anew_for_each_look(every: int) -> None:
    dynamo = pytest.importorskip("torch._dynamo")
    dynamo.reset()
    compiled: list[Any] = []

    def backend(graph: Any, inputs: Any) -> Any:
        compiled.append(graph)
        return graph

    net = model()
    fast = torch.compile(net, backend=backend)
    session, sink = watched(Settings("nodes", layer_stats=every))
    session.start()
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    for _ in range(13):
        loop(fast, optimizer)
    session.stop()
    assert session.error is None
    assert len(sink.trace(session).statistics) == (13 if every == 1 else 5)
    assert len(compiled) <= 2


def test_headroom_of_half_precision() -> None:
    net = nn.Linear(4, 8)
    nn.init.constant_(net.weight, 100.0)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    session, sink = watched(Settings("minimal", layer_stats=1))
    session.start()
    with torch.autocast("cpu", torch.bfloat16):
        out = net(torch.randn(3, 4))
    out.float().square().mean().backward()
    optimizer.step()
    session.stop()
    found = sink.trace(session).statistics
    top = found.curve("activation_max", "Linear")[0][1]
    assert found.curve("headroom", "Linear")[0][1] == pytest.approx(torch.finfo(torch.bfloat16).max / top, rel=1e-3)


def test_stable_rank() -> None:
    net = model()
    found, _ = trained(net, lambda p: torch.optim.SGD(p, 0.0), steps=41, every=1)
    curve = found.curve("stable_rank", "2.weight")
    assert [step for step, _ in curve] == [0, 10, 20, 30, 40]
    values = torch.linalg.svdvals(net[2].weight.detach())
    assert curve[-1][1] == pytest.approx(float(values.square().sum() / values[0].square()), rel=1e-2)


def test_a_budget_lowers_the_cadence_and_fast_path_steps_are_measured() -> None:
    net = nn.Linear(4, 4)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    session, sink = watched(Settings("nodes", budget=0.01, layer_stats=10))
    session.start()
    for _ in range(2000):
        loop(net, optimizer)
    session.stop()
    assert session.error is None
    trace = sink.trace(session)
    assert session.budget.steps_without_record + session.budget.deferred_records
    steps = trace.statistics.steps
    assert 2 < len(steps) < 200
    assert max(steps) > 100


def test_the_next_look_comes_soon_where_it_is_asked_for() -> None:
    net = nn.Linear(4, 4)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    session, sink = watched(Settings("nodes", budget=0.001, layer_stats=10))
    session.start()
    asked = 0
    for _ in range(3000):
        loop(net, optimizer)
        looks = len(sink.trace(session).statistics)
        if not asked and looks == 20:
            asked = sink.trace(session).statistics.steps[-1]
            session.context.measure_soon()
        elif asked and sink.trace(session).statistics.steps[-1] > asked:
            break
    session.stop()
    assert session.error is None
    steps = sink.trace(session).statistics.steps
    assert asked and steps[steps.index(asked) + 1] <= asked + 11


def test_the_steps_after_an_alarm_are_recorded() -> None:
    begun: list[int] = []
    recorded: list[int] = []

    class Heeds(Collector):
        def backward(self, call: PendingCallRecord) -> None:
            super().backward(call)
            recorded.append(call.step)

        def measured(self, measured: Measured) -> None:
            super().measured(measured)
            if measured.step >= 150 and not begun:
                begun.append(measured.step)
                session.context.on_alarms(["an alarm"], waits=False)

    sink = Heeds()
    session = Session(sink, Settings("nodes", budget=0.001, layer_stats=10))
    net = nn.Linear(4, 4)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    session.start()
    for _ in range(2000):
        loop(net, optimizer)
    session.stop()
    assert session.error is None
    (step,) = begun
    after = sorted(one for one in recorded if step < one <= step + 14)  # the next ones may take the fast path
    assert len(after) >= 2 and after[1] == after[0] + 1


def test_the_script_is_as_alone() -> None:
    def run(watch: bool) -> Any:
        net = Net(True)
        optimizer = torch.optim.AdamW(net.parameters(), 1e-2)
        session, _ = watched(Settings("minimal", layer_stats=1))
        if watch:
            session.start()
        for _ in range(5):
            optimizer.zero_grad()
            net(torch.randn(3, 7, 4)).square().mean().backward()
            optimizer.step()
        if watch:
            session.stop()
        return [*(p.detach().clone() for p in net.parameters()), torch.get_rng_state()]

    torch.manual_seed(3)
    alone = run(False)
    torch.manual_seed(3)
    assert all(torch.equal(a, b) for a, b in zip(alone, run(True), strict=True))


def test_a_kept_run_has_them(tmp_path: Path) -> None:
    net = model()
    with backprobe.trace(net, layer_stats=10) as trace:
        optimizer = torch.optim.AdamW(net.parameters(), 1e-2)
        for _ in range(12):
            loop(net, optimizer)
    assert trace.statistics.steps == [0, 10]
    run = backprobe.load_run(trace.save(tmp_path / "run"))
    assert list(run.statistics) == list(trace.statistics)
    again = backprobe.load_run(run.save(tmp_path / "again"))
    assert list(again.statistics) == list(trace.statistics)


STOPPED = """
import torch
model = torch.nn.Linear(8, 8)
optimizer = torch.optim.Adam(model.parameters(), lr=1.0)
try:
    for step in range(100_000):
        optimizer.zero_grad()
        model(torch.randn(4, 8)).square().mean().backward()
        optimizer.step()
finally:
    print("steps", step)
"""


def test_a_run_is_stopped_by_an_alarm(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(STOPPED)
    command = [sys.executable, "-m", "backprobe", "run", "--stop-on", "update-too-large", "--findings", "f.json"]
    done = subprocess.run([*command, "train.py"], cwd=tmp_path, capture_output=True, text=True, timeout=600)
    assert done.returncode
    assert "backprobe: the run is stopped for update-too-large: update_ratio of weight is" in done.stderr
    assert int(done.stdout.split("steps ")[1].split()[0]) < 99_999
    assert [f["kind"] for f in json.loads((tmp_path / "f.json").read_text())["findings"]] == ["update-too-large"]
