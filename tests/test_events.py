"""Events of a session and their listeners: order, removal, and faults that stay contained."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint
from watching import same, watched

from backprobe.observe.events import MAX_LISTENER_FAULTS, Events
from backprobe.observe.session import Session, Settings
from backprobe.observe.sinks.memory import Collector
from backprobe.observe.tracker import Tracker
from backprobe.observe.trackers import trackers

#: Every event, by name.
EVENTS = tuple(Events().by_name)


class Steps(Tracker):
    """Hears two events."""

    def __init__(self) -> None:
        self.heard: list[object] = []

    def observing_begins(self) -> None:
        self.heard.append("observing_begins")

    def step_ended(self, step: object) -> None:
        self.heard.append(step)


def test_a_listener_gets_the_events_it_has_methods_for_until_it_is_removed() -> None:
    events, steps = Events(), Steps()
    undo = events.attach(steps)
    assert [name for name, event in events.by_name.items() if event.listeners] == ["observing_begins", "step_ended"]
    events.observing_begins.emit()
    events.step_ended.emit(1)
    events.forward_begins.emit()
    undo()
    events.step_ended.emit(2)
    assert steps.heard == ["observing_begins", 1]
    assert not any(event.listeners for event in events.by_name.values())
    undo()  # a second call does nothing


def test_a_listener_that_raises_is_counted_and_the_others_still_get_the_event() -> None:
    class Raises(Tracker):
        def __init__(self) -> None:
            self.calls = 0

        def step_ended(self, step: object) -> None:
            self.calls += 1
            raise KeyError("fault")

    events, raises, steps = Events(), Raises(), Steps()
    events.attach(raises)
    events.attach(steps)
    for i in range(2 * MAX_LISTENER_FAULTS):
        events.step_ended.emit(i)
    assert steps.heard == list(range(2 * MAX_LISTENER_FAULTS))
    assert raises.calls == MAX_LISTENER_FAULTS  # after that it is left alone
    (unseen,) = events.faults.unseen()
    assert (unseen.what, unseen.count) == ("internal error", MAX_LISTENER_FAULTS)
    assert "Raises" in unseen.note and "KeyError: 'fault'" in unseen.note


def test_a_listener_may_remove_itself_during_an_event() -> None:
    class Once(Steps):
        def step_ended(self, step: object) -> None:
            super().step_ended(step)
            undo()

    events, once, after = Events(), Once(), Steps()
    undo = events.attach(once)
    events.attach(after)
    events.step_ended.emit(1)
    events.step_ended.emit(2)
    assert once.heard == [1] and after.heard == [1, 2]


def test_every_event_has_a_description() -> None:
    assert len(EVENTS) > 30
    for name in EVENTS:
        assert (getattr(Tracker, name).__doc__ or "").strip().endswith((".", "?")), name


def test_trackers_are_the_files_of_the_folder() -> None:
    found = trackers()
    assert len({make.__module__ for make in found}) == len(found) >= 14
    assert all(set(vars(make)) & {*EVENTS, "records"} for make in found)
    assert {make.__name__ for make in found if not make.wanted(Settings())} == {
        *(
            "Batches",
            "CheckpointComparison",
            "CompiledRegionCheck",
            "CustomFunctionCheck",
            "Memory",
            "NodeLog",
            "StatisticsTracker",
            "OpRecordingTracker",
            "Tensors",
        )
    }


@dataclass(frozen=True)
class Widest:
    """A record of a tracker's own: the widest gradient that a node gave."""

    shape: tuple[int, ...]


class NodesSeen(Tracker):
    """A third-party tracker that receives every node."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.nodes: list[int] = []
        self.widest: tuple[int, ...] = ()

    def backward_attaching(self, running) -> None:
        self.calls.append(running.kind)

    def node_ran(self, running, node, grad_inputs, grad_outputs) -> None:
        self.nodes.append(node)
        for g in grad_inputs:
            if g is not None and g.numel() > torch.Size(self.widest).numel():
                self.widest = tuple(g.shape)

    def records(self) -> tuple[Widest, ...]:
        return (Widest(self.widest),)


def test_a_third_party_tracker_gets_events_and_gives_records() -> None:
    session, collector = watched()
    mine = NodesSeen()
    detach = session.run_facts.attach(mine)
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
    session.start()
    for _ in range(5):
        model(torch.ones(3, 4)).sum().backward()
    seen = len(mine.nodes)
    detach()
    model(torch.ones(3, 4)).sum().backward()
    session.stop()
    assert session.error is None
    assert mine.calls == ["Tensor.backward"] * 5 and len(mine.nodes) == seen
    order = [r.node.index for r in collector.trace(session).steps[0].backwards[0].nodes if r.order is not None]
    assert set(mine.nodes[: seen // 5]) <= set(order) and seen % 5 == 0
    assert session.facts().of(Widest) == ()  # it is gone
    session, _ = watched()
    session.run_facts.attach(mine)
    assert session.facts().of(Widest) == (Widest(mine.widest),) and torch.Size(mine.widest).numel() == 32


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear, self.norm = nn.Linear(6, 6), nn.BatchNorm1d(6)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.norm(self.linear(x)).relu_()


class Net(nn.Module):
    """A model with an event for every tracker: buffers, hooks, checkpoints, an unregistered module, writes, cuts."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.blocks, self.last = nn.Linear(4, 6), nn.ModuleList([Block(), Block()]), nn.Linear(6, 1)
        self.hidden = [nn.Linear(6, 6)]
        self.blocks[0].linear.register_full_backward_hook(lambda *_: None)
        self.last.weight.register_hook(self.reads_grad)

    def reads_grad(self, g: torch.Tensor) -> None:
        assert self.last.bias.grad is None or self.last.bias.grad.shape == (1,)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.blocks[0](self.first(x))
        h = checkpoint(self.blocks[1], h, use_reentrant=False)
        h = checkpoint(torch.tanh, h, use_reentrant=True) + self.hidden[0](h)
        scale = float(h.detach().abs().max().item()) + h.numpy(force=True).mean()
        return self.last(h / scale).squeeze(1)


#: As many as are needed for a fault in the fourth call, and for what is left of the run after one in the first.
ROUNDS = {4: 5, 1: 3}


@cache
def alone(rounds: int) -> list[object]:
    return script(rounds)


def script(rounds: int) -> list[object]:
    torch.manual_seed(0)
    net = Net()
    opt = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    out: list[object] = []
    for _ in range(rounds):
        x = torch.randn(8, 4)
        x.data.mul_(1.0)
        loss = (net(x) - x.sum(1)).square().mean()
        inner = net.last(torch.ones(2, 6)).square().sum()
        penalty = torch.autograd.grad(inner, net.last.weight, create_graph=True)[0].square().sum()
        (loss + 0.01 * penalty).backward()
        opt.step()
        out += [loss.item(), *(p.grad.clone() for p in net.parameters() if p.grad is not None)]
        opt.zero_grad()
    out += [torch.get_rng_state(), *(t.clone() for t in net.state_dict().values())]
    return out


def listeners(session: Session) -> Iterator[tuple[object, str]]:
    for name, event in session.events.by_name.items():
        for listener in event.listeners:
            yield listener, name


def settings() -> Settings:
    return Settings(checks=frozenset({"functions", "divergence", "memory"}), histograms=("*",))


def names() -> list[str]:
    """Every listener and event of a session in which all is asked for."""
    session = Session(Collector(), settings())
    return sorted({f"{type(getattr(one, '__self__', one)).__name__}.{name}" for one, name in listeners(session)})


def is_compiler_wrapped() -> bool:
    """Whether something of ours is between torch's compiler and who calls it."""
    dynamo = sys.modules.get("torch._dynamo.output_graph")
    return hasattr(torch.compile, "__wrapped__") or (
        dynamo is not None and hasattr(dynamo.OutputGraph.call_user_compiler, "__wrapped__")
    )


#: Every listener fails in its first call, one of ten in the quick tests; some, in the slow tests, in the fourth.
FAULTS = [
    *(pytest.param(1, name, marks=[pytest.mark.long] if i % 10 else []) for i, name in enumerate(names())),
    *(pytest.param(4, name, marks=pytest.mark.slow) for name in names()[::6]),
]


@pytest.mark.parametrize(("at", "which"), FAULTS)
def test_a_fault_in_any_listener_stays_contained(at: int, which: str) -> None:
    """A listener raises in its call number `at`: the script is unaffected, and the session reports the fault."""
    expected = alone(ROUNDS[at])
    owner, name = which.split(".")
    session, collector = watched(settings())
    calls = 0

    def failing(listener):
        def call(*args):
            nonlocal calls
            calls += 1
            if calls == at:
                raise ZeroDivisionError("planted")
            return listener(*args)

        return call

    event = session.events.by_name[name]
    event.listeners = tuple(
        failing(one) if type(getattr(one, "__self__", one)).__name__ == owner else one for one in event.listeners
    )
    session.start()
    try:
        seen = script(ROUNDS[at])
    finally:
        session.stop()
        sys.setprofile(None)  # what takes it off may be what failed
    assert torch._C._len_torch_dispatch_stack() == 0 and not is_compiler_wrapped()
    assert all(same(a, b) for a, b in zip(expected, seen, strict=True))
    said = [u for u in session.run_facts.unseen() if u.what == "internal error"]
    assert bool(said) == (calls >= at)
    assert not said or any("planted" in u.note for u in said)
    trace = collector.trace(session)
    found = {f.kind for f in trace.findings}
    if owner not in ("Leaves", "ReachedLeaves", "RecordDelivery", "StepController", "UnregisteredParameters"):
        assert "unregistered-parameter" in found
    assert not torch.nn.modules.module._global_forward_hooks and not torch.nn.modules.module._global_forward_pre_hooks


def test_a_failed_removal_does_not_stop_the_others() -> None:
    session, _ = watched(settings())
    put = []

    def fails() -> None:
        raise ZeroDivisionError("planted")

    session.context.restorers[:] = [fails, *session.context.restorers, lambda: put.append(is_compiler_wrapped())]
    session.start()
    assert is_compiler_wrapped()
    session.stop()
    assert put == [False]
    assert any("planted" in one.note for one in session.run_facts.unseen())
