"""``--check compiled``: the results of compiled code against those of the original operations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from compiling import dynamo
from torch import nn
from torch._dynamo.backends.debugging import aot_eager
from torch.nn import functional as F

import backprobe
from backprobe.observe.session import Session, Settings
from backprobe.observe.sinks.memory import Collector
from backprobe.torch_internals import private

pytestmark = [pytest.mark.filterwarnings("default"), pytest.mark.usefixtures("fresh_dynamo")]


class Net(nn.Module):
    def __init__(self, drop: float = 0.0) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.up, self.mix, self.down, self.drop = nn.Linear(6, 8), nn.Linear(8, 8), nn.Linear(8, 3), drop

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = torch.relu(self.up(x))  # RELU
        h = h + F.gelu(self.mix(h))  # GELU
        h = F.dropout(h, self.drop, self.training)
        return self.down(h).tanh()  # TANH


class Leaky(torch.autograd.Function):
    """A relu whose derivative is one for some inputs below zero."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x)
        return x.relu()

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        (x,) = ctx.saved_tensors
        return grad * (x > -0.5)


def leaky(x: torch.Tensor) -> torch.Tensor:
    return Leaky.apply(x)


def scaled(x: torch.Tensor) -> torch.Tensor:
    return x.tanh() * (1 + 1e-3)


def not_finite(x: torch.Tensor) -> torch.Tensor:
    return x.tanh() / (x.abs() > 0.2)


def with_one(word: str, other: Callable[..., Any], **kwargs: Any) -> Callable[..., Any]:
    """A backend that runs `other` in place of the operation that has `word` in its name."""

    def backend(graph: Any, inputs: Any) -> Any:
        for node in graph.graph.nodes:
            if node.op in ("call_function", "call_method") and word in str(node.target):
                if node.op == "call_method":
                    node.op = "call_function"
                node.target, node.args, node.kwargs = other, node.args[:1], kwargs
        graph.recompile()
        return aot_eager(graph, inputs)

    return backend


def asked(backend: Any, net: nn.Module | None = None, double: bool = False, steps: int = 2) -> Any:
    net = net or Net()
    net = net.double() if double else net
    run = torch.compile(net, backend=backend)
    torch.manual_seed(1)
    collector = Collector()
    session = Session(collector, Settings(budget=None, checks=("compiled",)))
    session.start()
    for _ in range(steps):
        run(torch.randn(16, 6, dtype=torch.float64 if double else torch.float32)).square().sum().backward()
    before = torch.get_rng_state()
    session.stop()
    assert session.error is None, repr(session.error)
    assert torch.equal(torch.get_rng_state(), before)
    return collector.trace(session, {"ask": ["compiled"]})


FAULTS = {
    "gelu": (with_one("gelu", F.gelu, approximate="tanh"), "forward", "GELU"),
    "tanh": (with_one("tanh", scaled), "forward", "TANH"),
    "relu": (with_one("relu", leaky), "backward", "RELU"),
}


@pytest.mark.parametrize("op", FAULTS)
def test_the_operation_that_the_compiler_has_wrong(op: str) -> None:
    backend, what, mark = FAULTS[op]
    trace = asked(backend)
    (found,) = trace.findings
    assert (found.kind, found.evidence["op"], found.evidence["what"]) == ("wrong-compiled", op, what)
    assert [s.site.text.partition("# ")[2] for s in found.sites if s.role == "cause"] == [mark]
    assert found.evidence["off"] > 1e-5 > 1e-6 > found.evidence["usual"] and found.evidence["alone"]
    assert [region.function for region in trace.compiled] == ["forward"]  # what the check compiles is none of it


@pytest.mark.parametrize("op", FAULTS)
def test_the_script_that_comes_with_it_shows_it(op: str) -> None:
    backend, *_ = FAULTS[op]
    (found,) = asked(backend).findings
    dynamo.reset()
    said: list[Any] = []
    exec(found.evidence["script"], {"BACKEND": backend, "print": said.append, "__name__": "script"})
    assert float(said[0]) > 1e-5


def test_what_is_not_finite_where_the_operations_are() -> None:
    (found,) = [f for f in asked(with_one("tanh", not_finite)).findings if f.kind == "wrong-compiled"]
    assert (found.evidence["op"], found.evidence["off"]) == ("tanh", float("inf"))
    assert "not finite where that of its operations is" in found.title


@pytest.mark.parametrize("double", [False, True])
def test_a_compiler_that_is_right_is_silent(double: bool) -> None:
    trace = asked("aot_eager", double=double)
    assert trace.findings == [] and not [one for one in trace.coverage.unseen if "not checked" in one.what]


def test_a_region_with_random_numbers_is_reported_as_unchecked() -> None:
    trace = asked(with_one("tanh", scaled), Net(drop=0.5))
    assert trace.findings == []
    (said,) = [one for one in trace.coverage.unseen if "not checked" in one.what]
    assert said.count == 1 and "random" in said.note


def test_nothing_is_checked_that_is_not_asked_for() -> None:
    net = Net()
    run = torch.compile(net, backend=with_one("tanh", scaled))
    with backprobe.trace(net, budget=None) as trace:
        run(torch.randn(16, 6)).square().sum().backward()
    assert trace.findings == []


class Halves(nn.Module):
    """Its parts are compiled each alone."""

    def __init__(self, backend: Any) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first = torch.compile(Net(), backend=backend)
        self.second = torch.compile(nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 1)), backend=backend)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(self.first(x))


def not_checked(trace: Any) -> list[tuple[int, str]]:
    return [(one.count, one.note) for one in trace.coverage.unseen if "not checked" in one.what]


def of_halves() -> Any:
    collector = Collector()
    net = Halves(with_one("tanh", scaled))
    session = Session(collector, Settings(budget=None, checks=("compiled",)))
    session.start()
    net(torch.randn(16, 6)).square().sum().backward()
    session.stop()
    return session, collector.trace(session, {"ask": ["compiled"]})


def test_each_wrong_region_is_reported() -> None:
    session, trace = of_halves()
    assert session.error is None
    assert [f.evidence["op"] for f in trace.findings] == ["tanh", "tanh"] and not not_checked(trace)


def test_a_check_that_fails_loses_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    checks, seen = private.wrong_region, []

    def fails_first(call: Any) -> Any:
        seen.append(call)
        if len(seen) == 1:
            raise ValueError("of the test")
        return checks(call)

    monkeypatch.setattr(private, "wrong_region", fails_first)
    _, trace = of_halves()
    assert len(seen) == 2 and [f.evidence["op"] for f in trace.findings] == ["tanh"]
    assert not_checked(trace) == [(1, "each failed when it was run again")]
    assert [one for one in trace.coverage.unseen if "of the test" in str(one)]


@pytest.mark.parametrize(
    ("limit", "note"),
    [("MAX_CHECKED_REGIONS", "was called after 1 others"), ("MAX_WRONG_REGIONS", "comes after 1 that")],
)
def test_regions_that_are_left_out_are_counted(monkeypatch: pytest.MonkeyPatch, limit: str, note: str) -> None:
    monkeypatch.setattr(f"backprobe.observe.trackers.compiled_checked.{limit}", 1)
    _, trace = of_halves()
    assert len(trace.findings) == 1
    ((count, said),) = not_checked(trace)
    assert count == 1 and note in said


def test_a_region_that_memory_is_short_for_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("backprobe.torch_internals.compiled_checked.free_memory", lambda args: 1000.0)
    _, trace = of_halves()
    assert trace.findings == [] and not_checked(trace) == [(2, "each needs more memory than is free")]


class Shapes(nn.Module):
    """Numbers that are no tensors stand between its operations, and some write in place."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.up, self.down = nn.Linear(6, 8), nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = F.gelu(self.up(x))  # GELU
        one, two = h.chunk(2, dim=1)
        rows = h.size(0)
        one = one.clone()
        one.add_(two)
        one += rows
        out = self.down(one)
        with torch.no_grad():
            level = h.mean()
        return out * level


@pytest.mark.parametrize("dynamic", [False, True])
def test_the_first_operation_that_is_wrong_where_numbers_stand_between(dynamic: bool) -> None:
    net = Shapes()
    run = torch.compile(net, backend=FAULTS["gelu"][0], dynamic=dynamic)
    collector = Collector()
    session = Session(collector, Settings(budget=None, checks=("compiled",)))
    session.start()
    run(torch.randn(16, 6)).square().sum().backward()
    session.stop()
    (found,) = [f for f in collector.trace(session, {"ask": ["compiled"]}).findings if f.kind == "wrong-compiled"]
    assert [s.site.text.partition("# ")[2] for s in found.sites if s.role == "cause"] == ["GELU"]
