"""The overhead that a run reports, computed from hand-written clocks."""

from __future__ import annotations

import random

import pytest
import torch
from torch import nn
from watching import watched

from backprobe.basics import process_clock
from backprobe.basics.process_clock import Moment, Startup
from backprobe.observe import own_time
from backprobe.observe.own_time import OwnTime, SampledWork
from backprobe.observe.schedule import cost
from backprobe.observe.schedule.cost import MIN_COMPARED_STEPS, Cost, CostSummary, SlowdownEstimate
from backprobe.torch_internals import overheads
from backprobe.view.overhead import overhead


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The clock, the seconds of waiting for a processor, and those of standing for something else."""
    time = [0.0, 0.0, 0.0]
    monkeypatch.setattr(own_time, "_clock", lambda: time[0])
    monkeypatch.setattr(own_time, "_ran", lambda: time[0] - time[1] - time[2])
    monkeypatch.setattr(cost, "_clock", lambda: time[0])
    monkeypatch.setattr(cost, "waited", lambda: time[1])
    monkeypatch.setattr(process_clock, "_clock", lambda: time[0])
    monkeypatch.setattr(process_clock, "waited", lambda: time[1])
    return time


def of_steps(took: CostSummary) -> tuple[int, float, int, float, float]:
    """Return the number of the first and the later steps, and the seconds of each that were overhead."""
    return took.first_steps, took.first, took.steps, took.seconds, took.watching


def steps(cost: Cost, own: OwnTime, now: list[float], *times: tuple[float, float]) -> None:
    """Steps of (seconds of the script alone, seconds of ours)."""
    for script, mine in times:
        now[0] += script
        mark = own.begin()
        now[0] += mine
        own.since(mark)
        cost.charge_steps(script + mine)


def test_first_steps_are_counted_separately(now: list[float]) -> None:
    own = OwnTime()
    cost = Cost(own, inspected_steps=3)
    steps(cost, own, now, *[(1.0, 5.0)] * 3, *[(2.0, 0.5)] * 10)
    assert of_steps(cost.took) == (3, 15.0, 10, 25.0, 5.0)
    assert cost.took.share == 0.25


def test_the_free_seconds_of_every_run_count_with_the_first_steps(now: list[float]) -> None:
    own = OwnTime()
    cost = Cost(own, inspected_steps=2, free=1.0)
    steps(cost, own, now, *[(1.0, 5.0)] * 2, *[(1.0, 0.25)] * 4)
    assert of_steps(cost.took) == (6, 11.0, 0, 0.0, 0.0)  # just spent
    steps(cost, own, now, *[(1.0, 0.25)] * 10)
    assert of_steps(cost.took) == (6, 11.0, 10, 12.5, 2.5) and cost.took.share == 0.25


def test_slowdown_by_recorded_steps_is_counted(now: list[float]) -> None:
    """Beside ten steps of 1 s, one that is recorded takes the script 1.5 s, and us 0.5 s."""
    own = OwnTime()
    cost = Cost(own, inspected_steps=0)
    said = []
    for at in range(110):
        recorded = at % 11 == 10
        own.nodes += recorded
        steps(cost, own, now, (1.5, 0.5) if recorded else (1.0, 0.0))
        said += [cost.took.watching - sum(said)] if recorded else []
    assert said == [0.5] * (MIN_COMPARED_STEPS - 1) + [1.0] * (10 - MIN_COMPARED_STEPS + 1)


def test_steps_of_any_length_are_not_taken_for_slow_ones() -> None:
    draw, slowed = random.Random(0), SlowdownEstimate()
    told = [slowed.add_step(draw.uniform(1, 9), at % 7 == 0) for at in range(4000)]
    assert sum(told) / 4000 < 0.1  # 5 s each: 2 % of them

    slowed = SlowdownEstimate()
    quicker = [slowed.add_step(0.5 if at % 7 == 0 else 1.0, at % 7 == 0) for at in range(400)]
    assert not any(quicker)  # never less than nothing


@pytest.mark.parametrize("later", [9, 0])
def test_few_steps_have_no_share(now: list[float], later: int) -> None:
    own = OwnTime()
    cost = Cost(own, inspected_steps=3)
    steps(cost, own, now, *[(1.0, 5.0)] * 3, *[(1.0, 0.5)] * later)
    assert cost.took.share is None
    assert cost.took.added == 15 + 0.5 * later


def test_no_division_by_next_to_nothing(now: list[float]) -> None:
    own = OwnTime()
    cost = Cost(own, inspected_steps=0)
    steps(cost, own, now, *[(1e-12, 1.0)] * 20)
    assert cost.took.share is None
    assert overhead(cost.took.info(), parts=False) == "overhead 20 s"
    own = OwnTime()
    cost = Cost(own, inspected_steps=0)
    own.nodes, own.per_node = 1000, 1.0  # an estimate beyond the step: the step is all there is
    assert cost.charge_steps(2.0) == 2.0
    assert of_steps(cost.took) == (0, 0.0, 1, 2.0, 2.0)


def test_a_script_without_a_step(now: list[float]) -> None:
    own = OwnTime()
    cost = Cost(own, inspected_steps=3)
    mark = own.begin()
    now[0] += 0.25
    own.since(mark)
    assert of_steps(cost.took) == (0, 0.25, 0, 0.0, 0.0)
    assert cost.took.added == 0.25


def test_unknown_costs_are_not_reported() -> None:
    assert overhead({}) == ""
    assert overhead({"cost": 71858862392.42}) == ""  # of a version that had no first steps: its share was wrong
    of_steps_alone = {
        "cost": 0.123,
        "first_steps": 3,
        "first_cost": 0.31,
        "own": 0.2,
    }  # start and end were not measured
    assert overhead(of_steps_alone) == "overhead at least 0.5 s"


def whole_run(now: list[float], budget: float | None = 0.05) -> Cost:
    """0.5 s of the start, 2 s of torch's import, 13 steps (three of 0.25 s of ours, then 0.5 s, a failure in one of
    them), 0.125 s at the end, and 4 s of waiting for a processor outside of the steps."""
    began = Moment.now()
    now[0] += 2.5
    own = OwnTime()
    cost = Cost(own, inspected_steps=3, budget=budget)
    cost.started(Startup(began, script_s=2.0))
    steps(cost, own, now, *[(1.0, 0.25)] * 3, *[(1.0, 0.5)] * 5)
    cost.charge_to_diagnosis()
    steps(cost, own, now, (1.0, 2.0), *[(1.0, 0.5)] * 4)
    now[:] = now[0] + 4.0, now[1] + 4.0, now[2]
    mark = cost.mark_end()
    now[0] += 0.0625
    cost.begin_end(mark)
    now[0] += 0.0625
    return cost


def test_the_parts_of_the_overhead_add_up_to_it_and_the_rest_is_the_scripts(now: list[float]) -> None:
    cost = whole_run(now)
    took = cost.freeze()
    assert (took.start, took.first, took.watching, took.explaining, took.end) == (0.5, 0.75, 4.5, 2.0, 0.125)
    assert took.added == 7.875 and took.waited == 4.0 and took.steps == 9
    assert took.elapsed == 2.0 + 13.0 + took.added  # torch's import, the script's steps, and ours
    now[0] += 100.0
    assert cost.took == took  # what comes after the report is not counted
    assert took.info()["overhead"]["alone"] == 15.0


def test_a_run_reports_one_number_and_its_parts(now: list[float]) -> None:
    info = whole_run(now).took.info()
    whole = "overhead 44%, plus 1.2 s at the start"
    waiting = "; the script waited 4.0 s for a processor"
    assert overhead(info, parts=False) == whole + waiting
    # the other parts are less than a tenth of it
    assert overhead(info) == f"{whole} (4.5 s in the later steps and 2.0 s to explain failures){waiting}"
    generous = {**info, "overhead": {**info["overhead"], "budget": 0.6}}
    assert overhead(generous) == f"{whole} (2.0 s to explain failures){waiting}"
    assert overhead(whole_run(now, None).took.info()) == overhead(info)  # without a budget, causes are named too


def told(**parts: float) -> dict[str, object]:
    known = dict.fromkeys(("start", "first_steps", "later_steps", "explaining", "end", "waited"), 0.0)
    known |= {name: value for name, value in parts.items() if name in known}
    added = sum(value for name, value in known.items() if name != "waited")
    whole = {**known, "added": added, "alone": parts.get("alone", 1.0), "budget": 0.05}
    return {"first_steps": 3, "overhead": whole}


@pytest.mark.parametrize(
    ("parts", "text"),
    [
        ({"start": 0.3, "first_steps": 0.1, "alone": 3.2}, "under 1%, plus 0.4 s at the start"),
        ({"start": 0.4, "later_steps": 3.6, "alone": 100.0}, "4%, plus 0.4 s at the start"),
        ({"start": 0.004, "alone": 900.0}, "under 1%, plus 4 ms at the start"),
        ({"start": 0.5, "alone": 0.002}, "0.5 s (0.5 s before the script)"),
        ({"first_steps": 0.2, "end": 0.2}, "20%, plus 0.2 s at the start (0.2 s {3} and 0.2 s at the end)"),
        ({"explaining": 0.01, "start": 0.01}, "1%, plus 10 ms at the start (10 ms to explain failures)"),
        ({"later_steps": 0.5, "alone": 5.0}, "10% (0.5 s in the later steps)"),
        ({"later_steps": 0.1, "alone": 2.0, "waited": 0.2}, "5%"),
    ],
)
def test_the_words_of_the_overhead(parts: dict[str, float], text: str) -> None:
    assert overhead(told(**parts)) == "overhead " + text.replace("{3}", "in the first 3 steps")


def test_own_work_that_is_clocked_at_the_end_counts_once(now: list[float]) -> None:
    """The last step is over while the session ends: its second is the step's, what follows is the end's."""
    own = OwnTime()
    cost = Cost(own, inspected_steps=0)
    cost.started(None)
    steps(cost, own, now, *[(1.0, 0.5)] * 10)
    now[0] += 1.0
    mark = cost.mark_end()
    begin = own.begin()
    now[0] += 0.25
    own.since(begin)
    cost.charge_steps(1.25)
    begin = own.begin()
    now[0] += 0.125
    own.since(begin)  # in no step
    cost.begin_end(mark)
    now[0] += 0.5
    took = cost.took
    assert (took.watching, took.end) == (5.25, 0.625)
    assert took.elapsed - took.added == 11.0


def test_waiting_for_other_processes_is_no_overhead(now: list[float]) -> None:
    cost = Cost(OwnTime(), inspected_steps=0)
    cost.started(None)
    cost.begin_end(cost.mark_end())
    now[0] += 0.5
    with cost.exclude_from_end():
        now[0] += 30.0
    now[0] += 0.25
    assert cost.took.end == 0.75 and cost.took.elapsed == 30.75


def test_time_before_the_script_belongs_to_the_start_alone(now: list[float]) -> None:
    own = OwnTime()
    cost = Cost(own, inspected_steps=3)
    begin = own.begin()
    now[0] += 0.5
    own.since(begin)
    cost.started(None)
    steps(cost, own, now, (1.0, 0.25))
    assert (cost.took.start, cost.took.first) == (0.5, 0.25)


def test_clocked_work_inside_clocked_work_counts_once(now: list[float]) -> None:
    own = OwnTime()
    outer = own.begin()
    now[0] += 1.0
    inner = own.begin()
    now[0] += 2.0
    own.since(inner)
    now[0] += 1.0
    own.since(outer)
    assert own.clocked == 4.0


def test_time_measured_inside_a_frequent_section_is_subtracted(now: list[float]) -> None:
    own = OwnTime()
    own.ops.left -= 1
    mark = own.mark()
    now[0] += 1.0
    inner = own.begin()
    now[0] += 2.0
    own.since(inner)
    now[0] += 4.0  # the script's own
    own.often(own.ops, mark, 4.0, close=True)
    assert (own.clocked, own.counted) == (2.0, 1.0)


def test_some_of_the_times_stand_for_all() -> None:
    """Whatever the period of what happens, and where looking closely begins and ends."""
    draw = random.Random(0)
    for period in (1, 2, 16, 32, 100):
        often, total = SampledWork(), 0.0
        for at in range(40_000):
            seconds = (1 + at % period) * draw.uniform(0.5, 1.5) * 1e-6
            close = at < 500
            total += seconds
            often.left -= 1
            if often.left <= 0 or close:
                often.add(seconds, close)
        assert often.seconds == pytest.approx(total, rel=0.1)


def test_an_interruption_does_not_stand_for_many() -> None:
    often = SampledWork()
    for at in range(10_000):
        often.left -= 1
        if often.left <= 0:
            often.add(0.1 if at > 5000 and often._measured == 200 else 1e-6, False)
    assert often.seconds < 0.02


def test_waiting_for_a_processor_is_not_the_scripts_own(now: list[float]) -> None:
    """Half the time goes to others, and none of it while we work."""
    own = OwnTime()
    cost = Cost(own, inspected_steps=0)
    for _ in range(10):
        own.nodes, own.per_node = own.nodes + 1, 0.25
        now[0] += 2.0
        now[1] += 1.0
        assert cost.charge_steps(2.0) == 0.25 and cost.seconds == 1.0
    assert cost.took.share == pytest.approx(1 / 3)


@pytest.mark.parametrize(
    ("waiting", "standing", "said"), [(0.4, 0.0, 0.1), (0.0, 0.4, 0.5), (0.3, 0.1, 0.2), (0.0, 0.0, 0.5)]
)
def test_waiting_for_a_processor_is_not_ours(now: list[float], waiting: float, standing: float, said: float) -> None:
    """Our work takes half a second: its wait for a processor is not overhead, its wait for a disk is."""
    own = OwnTime()
    cost = Cost(own, inspected_steps=0)
    for _ in range(12):
        now[0] += 1.0
        mark = own.begin()
        now[:] = now[0] + 0.5, now[1] + waiting, now[2] + standing
        own.since(mark)
        assert cost.charge_steps(1.5) == pytest.approx(said)
    assert cost.took.share == pytest.approx(said)


def test_waiting_in_a_frequent_section_is_not_subtracted_from_later_steps(now: list[float]) -> None:
    """In the first step nine of ten seconds were ours, told by measured calls, and four of five were waited."""
    own = OwnTime()
    cost = Cost(own, inspected_steps=1)
    own.ops.left -= 1
    own.ops.add(9.0, True)
    now[:] = 10.0, 8.0, 0.0
    assert cost.charge_steps(10.0) == pytest.approx(1.8) and cost.seconds == pytest.approx(2.0)
    for _ in range(3):
        now[0] += 1.0
        assert cost.charge_steps(1.0) == 0.0 and cost.seconds == 1.0


def test_waiting_in_short_steps_does_not_affect_much_later_steps(now: list[float]) -> None:
    own = OwnTime()
    cost = Cost(own, inspected_steps=0)
    seconds = []
    for step in range(2000):
        now[0] += 0.002
        now[1] += 0.0015 if step < 1000 else 0.0
        cost.charge_steps(0.002)
        seconds.append(cost.seconds)
    assert sum(seconds[:1000]) == pytest.approx(0.5, abs=0.05) and sum(seconds[1050:]) == pytest.approx(1.9)


def test_waiting_in_hooks_is_distinguished_from_waiting_in_nodes(now: list[float]) -> None:
    """Both are among what took long."""
    times = [0.0, 0.00001, 0.00002, 0.00003, 0.30003, 0.30004, 0.30005, 0.40005, 0.40006]
    own = OwnTime()
    own.ran(4, 0.3, times, stalled=0.2)
    assert own.stalled == pytest.approx(0.15)
    own = OwnTime()
    own.ran(2, 0.00002, times[:3], stalled=0.2)
    assert own.stalled == 0.0


def test_waiting_in_a_pause_is_in_no_step(now: list[float]) -> None:
    own = OwnTime()
    cost = Cost(own, inspected_steps=0)
    now[:] = 100.0, 90.0, 0.0
    cost.resume()
    steps(cost, own, now, *[(1.0, 0.5)] * 10)
    assert (cost.took.seconds, cost.took.watching) == (15.0, 5.0)


def test_steps_of_a_session_say_what_was_ours() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    session, collector = watched()
    session.start()
    for _ in range(15):
        optimizer.zero_grad()
        model(torch.ones(2, 4)).sum().backward()
        optimizer.step()
    session.stop()
    records = [step.record for step in collector.trace(session).steps]
    assert len(records) == 15
    assert all(0 <= step.watching <= step.seconds for step in records)
    said = session.cost.took
    assert said.first == pytest.approx(sum(step.watching for step in records[:3]))
    assert said.watching == pytest.approx(sum(step.watching for step in records[3:]))
    assert said.steps == 12 and said.share is not None and said.share > 0


def test_a_pause_is_no_part_of_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    from backprobe.observe.schedule import steps

    time = [0.0]
    monkeypatch.setattr(steps, "_clock", lambda: time[0])
    x = torch.ones(2, requires_grad=True)
    session, collector = watched()
    session.start()
    for _ in range(3):
        time[0] += 1.0
        x.sum().backward()
        x.grad = None
        session.pause()
        time[0] += 100.0
        session.resume()
    session.stop()
    assert [step.seconds for step in collector.trace(session).steps] == [2.0, 1.0, 0.0]


def test_overheads_leave_no_trace() -> None:
    overheads._measured.cache_clear()
    overheads._measured_of_node.cache_clear()
    torch.ones(1, requires_grad=True).sum().backward()
    before, modes = torch.get_rng_state(), torch._C._len_torch_function_stack()
    found = overheads.overheads()
    assert overheads.of_node() >= 0 and min(found.function, found.python, found.getter, found.module) >= 0
    assert found.of(torch.nn.functional.relu) == found.python and found.of(torch.Tensor.neg) == found.function
    assert torch.equal(before, torch.get_rng_state()) and torch._C._len_torch_function_stack() == modes


def test_overheads_are_not_measured_under_a_mode_of_the_script() -> None:
    seen = []

    class Mode(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            seen.append(func)
            return func(*args, **(kwargs or {}))

    with Mode():
        assert overheads.overheads() == overheads.Overheads()
    assert not seen


def test_work_that_has_not_ended_counts_until_now(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(own_time, "_clock", lambda: now)
    own = own_time.OwnTime()
    outer = own.begin()
    now += 1.0
    inner = own.begin()
    now += 2.0
    assert own.until_now == pytest.approx(3.0)
    own.since(inner)
    now += 4.0
    assert own.until_now == pytest.approx(7.0)
    own.since(outer)
    now += 8.0
    assert own.until_now == own.clocked == pytest.approx(7.0)
