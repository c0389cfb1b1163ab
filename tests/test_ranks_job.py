"""A job of several ranks, on hand-written records: replicas that drift, first bad rank, norms of whole parameters."""

from __future__ import annotations

import dataclasses
import math

import pytest

from backprobe import Trace
from backprobe.findings.several_processes import in_time
from backprobe.records import (
    Collective,
    Facts,
    Finding,
    ParameterStat,
    RankSeen,
    Replica,
    Replicas,
    ReplicaState,
    Site,
    Step,
)
from backprobe.store.sharded import Whole, sharded
from backprobe.traces import TracedStep

BACKWARD_SITE, WRITE_SITE = Site("train.py", 10, "train"), Site("train.py", 20, "train")
DDP = (Replica("up", (4, 4), "ddp"), Replica("down", (4, 4), "ddp"))


def state(step: int, before=(1, 2), gradients=(3, 4), after=None) -> ReplicaState:
    """Values that go on from step to step, so that one step's ``after`` is the next one's ``before``."""
    begin = tuple(value + 10 * step for value in before)
    return ReplicaState(step, 0, begin, tuple(gradients), after or tuple(value + 10 for value in begin), BACKWARD_SITE)


def rank(
    number: int, *states: ReplicaState, tensors=DDP, written=(), findings=(), error="", site=None, **more
) -> Trace:
    seen = RankSeen(number, 100 + number, error=error, raised=site)
    replicas = Replicas(number, 2, tensors, states, written, **more)
    return Trace((), Facts(seen=(seen, replicas)), findings=findings)


def job_findings(traces: list[Trace]) -> list[Finding]:
    """Return the findings of a job, from the record that each rank writes at its end."""
    seen = []
    for trace in traces:
        (one,) = trace.facts.of(RankSeen)
        seen.append(dataclasses.replace(one, findings=tuple(trace.findings), replicas=trace.facts.of(Replicas)))
    return list(Trace((), Facts(seen=tuple(seen))).findings)


def drift(*ranks: Trace) -> Finding:
    (found,) = job_findings(ranks)
    assert found.kind == "rank-drift"
    return found


SAME = [state(n) for n in range(4)]
#: Cause -> the states of the second rank, the parameters that differ, the step.
DRIFTS = {
    "start": ([state(n, (1, 9)) for n in range(4)], ("down",), 0),
    "not reduced": ([SAME[0], *(state(n, (1, 8), (3, 5)) for n in range(1, 4))], ("down",), 1),
    "optimizer": ([SAME[0], state(1, after=(77, 78)), *(state(n, (7, 8)) for n in (2, 3))], ("up", "down"), 1),
    "written": ([SAME[0], SAME[1], state(2, (1, 6)), state(3, (1, 6))], ("down",), 2),
}


@pytest.mark.parametrize("cause", DRIFTS)
def test_why_replicas_drift(cause: str) -> None:
    states, names, step = DRIFTS[cause]
    if cause == "not reduced":
        states[1] = dataclasses.replace(state(1, gradients=(3, 5)), after=(21, 28))
    found = drift(rank(0, *SAME), rank(1, *states))
    assert (found.evidence["cause"], found.parameters, found.step) == (cause, names, step)
    assert [s.role for s in found.sites] == (["backward"] if cause == "not reduced" else [])
    assert found.rank == (1 if cause == "written" else None)
    assert drift(rank(1, *states), rank(0, *SAME)) == found  # in whatever order they come


def test_the_line_that_wrote_on_one_rank_is_reported() -> None:
    states = DRIFTS["written"][0]
    found = drift(
        rank(0, *SAME), rank(1, *states, written=((1, "down", "clamp_", WRITE_SITE), (0, "up", "mul_", BACKWARD_SITE)))
    )
    assert [(s.role, s.site) for s in found.sites] == [("cause", WRITE_SITE)]
    assert "on rank 1 only" in found.title


def test_the_line_that_wrote_on_every_rank_is_reported() -> None:
    """With random numbers of its own on each."""
    written = ((1, "down", "__setitem__", WRITE_SITE),)
    states = [[SAME[0], SAME[1], *(state(n, (1, 6 + by)) for n in (2, 3))] for by in (0, 1)]
    found = drift(rank(0, *states[0], written=written), rank(1, *states[1], written=written))
    assert (found.evidence["cause"], found.rank) == ("written", None)
    assert [(s.role, s.site) for s in found.sites] == [("cause", WRITE_SITE)]


@pytest.mark.parametrize("size", [32, 16])
def test_a_plain_model_that_reduces_its_gradients_too_early(size: int) -> None:
    """Gradients are never equal when the optimizer steps; but all begin alike, and reduce as many elements in each
    step as there are."""
    calls = tuple(Collective("0", n, "all_reduce", f"float[{size}]", n, True) for n in range(1, 5))
    seen = []
    for number in (0, 1):
        apart = [
            ReplicaState(n, 0, (1 + n * number,), (3 + number,), (2 + n * number,), BACKWARD_SITE) for n in range(4)
        ]
        replicas = Replicas(number, 2, (Replica("up", (4, 8)),), tuple(apart))
        seen.append(RankSeen(number, 100 + number, steps=4, collectives=calls, replicas=(replicas,)))
    found = list(Trace((), Facts(seen=tuple(seen))).findings)
    if size == 16:  # a part of them, or something else
        assert found == []
        return
    assert [(f.evidence["cause"], f.confidence, f.step) for f in found] == [("not reduced", "likely", 0)]
    assert found[0].sites[0].site == BACKWARD_SITE


def test_earlier_names_of_a_rank_only_model_do_not_affect_the_order() -> None:
    def named(*pairs: tuple[str, str]) -> tuple[Replica, ...]:
        return tuple(Replica(name, (4,), how) for name, how in pairs)

    one, other = named(("a", "ddp"), ("b", "ddp")), named(("b", "ddp"), ("a", "ddp"))
    assert [f.evidence["cause"] for f in job_findings([rank(0, tensors=one), rank(1, tensors=other)])] == ["order"]
    local = named(("a", ""), ("b", "ddp"))
    assert job_findings([rank(0, tensors=one), rank(1, tensors=local)]) == []


def test_equal_or_single_rank_values_are_no_drift() -> None:
    assert job_findings([rank(0, *SAME), rank(1, *SAME)]) == []
    assert job_findings([rank(0, *SAME)]) == []
    assert job_findings([rank(0, *SAME[:2]), rank(1, *SAME)]) == []
    assert job_findings([rank(0), rank(1, *SAME)]) == []


def test_an_uninspected_step_may_have_the_cause() -> None:
    found = drift(rank(0, SAME[0], state(8)), rank(1, SAME[0], state(8, (1, 9))))
    assert (found.evidence["cause"], found.confidence) == ("", "likely")
    assert "between steps 0 and 8" in found.title
    wrote = ((5, "down", "copy_", WRITE_SITE), (7, "down", "mul_", BACKWARD_SITE))
    alone = drift(rank(0, SAME[0], state(8)), rank(1, SAME[0], state(8, (1, 9)), written=wrote))
    assert (alone.evidence["cause"], alone.rank, alone.step) == ("written", 1, 5)
    assert [(one.role, one.site) for one in alone.sites] == [("cause", WRITE_SITE)]
    both = drift(rank(0, SAME[0], state(8), written=wrote), rank(1, SAME[0], state(8, (1, 9)), written=wrote))
    assert both.evidence["cause"] == ""


def test_an_unobserved_write_is_reported_from_its_effect() -> None:
    """In steps that are not recorded no mode sees who writes; an optimizer knows how often its weights were."""
    changed = (("up", (3,), (BACKWARD_SITE,)), ("down", (6, 8), (WRITE_SITE,)))
    own = drift(rank(0, SAME[0], state(8)), rank(1, SAME[0], state(8, (1, 9)), changed=changed))
    assert (own.evidence["cause"], own.rank, own.step, own.confidence) == ("written", 1, 6, "likely")
    assert [(one.role, one.site) for one in own.sites] == [("cause", WRITE_SITE)]
    assert own.title == "down was written to between the updates of steps 5 and 6, on rank 1 only"
    both = drift(rank(0, SAME[0], state(8), changed=changed), rank(1, SAME[0], state(8, (1, 9)), changed=changed))
    assert (both.evidence["cause"], both.rank) == ("", None)
    later = drift(
        rank(0, SAME[0], state(8)), rank(1, SAME[0], state(8, (1, 9)), changed=(("down", (9,), (WRITE_SITE,)),))
    )
    assert later.evidence["cause"] == ""  # after they had gone apart
    near = drift(rank(0, *SAME), rank(1, *DRIFTS["written"][0], changed=changed))
    assert (near.rank, [one.site for one in near.sites]) == (1, [WRITE_SITE])


def test_the_loop_that_gives_the_lines_which_reduce_their_parameters() -> None:
    loop, reduces = Site("train.py", 7, "average"), Site("train.py", 8, "average")
    states = [dataclasses.replace(one, touched=(reduces,)) for one in (SAME[0], state(1, gradients=(3, 5)))]
    found = drift(rank(0, *SAME[:2], loops=((reduces, loop),)), rank(1, *states, state(2, (1, 8)), loops=()))
    assert [(one.role, one.site) for one in found.sites[1:]] == [("touched", reduces), ("loop", loop)]


def test_weights_that_come_together_again_are_averaged_now_and_then() -> None:
    apart = [SAME[0], dataclasses.replace(SAME[1], after=(5, 6)), state(2, (7, 8)), SAME[3]]
    assert job_findings([rank(0, *SAME), rank(1, *apart)]) == []


def test_a_setting_of_the_optimizer_that_is_not_the_same() -> None:
    def one(number: int, rate: float, *setters: tuple[str, Site]) -> Trace:
        rates = (0.1, rate, rate, rate)
        states = [*SAME] if rate == 0.1 else DRIFTS["optimizer"][0]
        states = [
            dataclasses.replace(s, settings=((("eps", 1.0), ("lr", r)),)) for s, r in zip(states, rates, strict=True)
        ]
        trace = rank(number, *states)
        seen, replicas = trace.facts.of(RankSeen)[0], trace.facts.of(Replicas)[0]
        return Trace((), Facts(seen=(seen, dataclasses.replace(replicas, setters=setters))))

    found = drift(one(0, 0.1), one(1, 0.05, ("eps", BACKWARD_SITE), ("lr", WRITE_SITE)))
    assert (found.evidence["cause"], found.rank, found.step) == ("optimizer", 1, 1)
    assert found.title.endswith(": its lr is 0.1 on rank 0, 0.05 on rank 1")
    assert [(s.role, s.site) for s in found.sites] == [("cause", WRITE_SITE)]


def test_a_last_backward_that_was_not_to_be_reduced() -> None:
    states = [dataclasses.replace(state(0, gradients=(3, 4 + n)), unsynced=(WRITE_SITE,)) for n in range(2)]
    found = drift(rank(0, states[0], state(1)), rank(1, states[1], state(1, (7, 8))))
    assert (found.evidence["cause"], found.step) == ("not reduced", 0)
    assert "under no_sync()" in found.title
    assert [(s.role, s.site) for s in found.sites] == [("backward", BACKWARD_SITE), ("cause", WRITE_SITE)]


def plain(*states: ReplicaState, number: int) -> Trace:
    return rank(number, *states, tensors=tuple(dataclasses.replace(t, how="") for t in DDP))


def test_a_plain_model_is_compared_where_its_gradients_are_equal() -> None:
    alone = [state(n, (5, 6), (8, 9)) for n in range(4)]
    assert job_findings([plain(*SAME, number=0), plain(*alone, number=1)]) == []  # two stages, or two models
    reduced = [state(n, (5, 6)) for n in range(4)]
    found = job_findings([plain(*SAME, number=0), plain(*reduced, number=1)])
    assert [f.evidence["cause"] for f in found] == ["start"]


def test_experts_that_each_rank_has_of_its_own_are_not_compared() -> None:
    """Others beside them are reduced; these begin as they like and get gradients of their own."""
    own = [state(n, (1, 9), (3, 8)) for n in range(4)]
    assert job_findings([plain(*SAME, number=0), plain(*own, number=1)]) == []
    forgotten = [state(n, (1, 2), (3, 8)) for n in range(4)]
    forgotten = [dataclasses.replace(s, after=(s.after[0], 99 + n)) for n, s in enumerate(forgotten)]
    (found,) = job_findings([plain(*SAME, number=0), plain(*forgotten, number=1)])
    assert (found.evidence["cause"], found.parameters) == ("not reduced", ("down",))


def with_lines(number: int, states: list[ReplicaState], **lines) -> Trace:
    trace = rank(number, *states)
    seen, replicas = trace.facts.of(RankSeen)[0], trace.facts.of(Replicas)[0]
    return Trace((), Facts(seen=(seen, dataclasses.replace(replicas, **lines))))


UNREDUCED = [[state(0, gradients=(3, 4 + n)), state(1, (1 + n, 2 + n))] for n in range(2)]


@pytest.mark.parametrize(
    ("lines", "says", "sites"),
    [
        (
            {"put": (("down", WRITE_SITE),)},
            "dtype was changed after",
            [("cause", WRITE_SITE), ("backward", BACKWARD_SITE)],
        ),
        ({"put": (("other", WRITE_SITE),)}, "when the optimizer steps", [("backward", BACKWARD_SITE)]),
        (
            {"hooks": (("quantize", (WRITE_SITE,)),)},
            "hook makes it (quantize)",
            [("hook", WRITE_SITE), ("backward", BACKWARD_SITE)],
        ),
        (
            {"hooks": (("quantize", (WRITE_SITE, BACKWARD_SITE)),)},
            "(quantize), which draws random numbers",
            [("hook", WRITE_SITE), ("cause", BACKWARD_SITE), ("backward", BACKWARD_SITE)],
        ),
    ],
)
def test_why_gradients_are_not_the_same(lines: dict, says: str, sites: list) -> None:
    found = drift(*(with_lines(number, UNREDUCED[number], **lines) for number in range(2)))
    assert found.evidence["cause"] == "not reduced" and found.title.endswith(says) == (
        says != "dtype was changed after"
    )
    assert says in found.title
    assert [(s.role, s.site) for s in found.sites] == sites


def test_lines_that_used_gradients_since_the_backward() -> None:
    states = [[dataclasses.replace(one[0], touched=(WRITE_SITE,)), one[1]] for one in UNREDUCED]
    found = drift(*(rank(number, *states[number]) for number in range(2)))
    assert [(s.role, s.site) for s in found.sites] == [("backward", BACKWARD_SITE), ("touched", WRITE_SITE)]


def test_where_weights_that_began_apart_were_drawn() -> None:
    apart = DRIFTS["start"][0]
    lines = {"drawn": (("up", BACKWARD_SITE), ("down", WRITE_SITE))}
    found = drift(with_lines(0, SAME, **lines), with_lines(1, apart, **lines))
    assert [(s.role, s.site) for s in found.sites] == [("drawn", WRITE_SITE)]


def test_a_rank_that_is_given_other_inputs_under_tensor_parallelism() -> None:
    """Two optimizers, of sharded and of plain weights: each is compared with its own states, from its first step on."""
    here, seeds = [], Site("train.py", 5, "train")
    for place in range(2):
        sharded = Replica("up", (4, 4), "dtensor", (place,), (2,), ("S(0)",))
        tensors = (sharded, Replica("bias", (4,), "dtensor", (-1,), (2,), ("R",)), Replica("stem", (4, 4)))
        states = []
        for n in range(5):
            apart = place * (n >= 3)  # what it is given differs from step 3 on
            ones = (7 + n + place, 20 + n + 5 * place * (n > 3), None), (8 + place, 3 + apart, None)
            after = (8 + n + place, 21 + n + 5 * apart, None)
            plain = (
                (None, None, 40 + n + 5 * place * (n > 3)),
                (None, None, 5 + apart),
                (None, None, 41 + n + 5 * apart),
            )
            states += [ReplicaState(n, 0, *ones, after, BACKWARD_SITE), ReplicaState(n, 1, *plain, BACKWARD_SITE)]
        one = rank(place, *states, tensors=tensors)
        (replicas,) = one.facts.of(Replicas)
        kept = [seen for seen in one.facts.seen if seen is not replicas]
        here.append(Trace((), Facts(seen=(*kept, dataclasses.replace(replicas, seeded=(seeds,))))))
    found = drift(*here)
    assert (found.evidence["cause"], found.parameters, found.step) == ("inputs", ("bias",), 3)
    assert [(s.role, s.site) for s in found.sites] == [("backward", BACKWARD_SITE), ("seeded", seeds)]


def test_plain_weights_of_a_second_optimizer_are_compared() -> None:
    """The weights of the first optimizer are sharded, and differ on each rank."""
    ranks = []
    for place in range(2):
        states = []
        for n in range(5):
            apart = place * (n >= 3)
            own, stem = 7 + n + place, 40 + n + 5 * place * (n > 3)
            states += [
                ReplicaState(n, 0, (own, None), (8 + place, None), (own + 1, None), BACKWARD_SITE),
                ReplicaState(n, 1, (None, stem), (None, 5 + apart), (None, 41 + n + 5 * apart), BACKWARD_SITE),
            ]
        ranks.append(rank(place, *states, tensors=(Replica("own", (4, 4)), Replica("stem", (4, 4)))))
    found = drift(*ranks)
    assert (found.evidence["cause"], found.parameters, found.step) == ("not reduced", ("stem",), 3)


def test_parts_of_a_sharded_parameter_are_not_compared() -> None:
    def sharded(number: int, place: int) -> Trace:
        part = Replica("up", (4, 4), "dtensor", (-1, place), (2, 2), ("R", "S(0)"))
        return rank(number, ReplicaState(0, 0, (number // 2,), (1,), (number // 2,)), tensors=(part,))

    # Ranks 0 and 1 hold one part each, ranks 2 and 3 copies of them.
    assert job_findings([sharded(0, 0), sharded(1, 1)]) == []
    found = drift(*(sharded(number, number % 2) for number in range(4)))
    assert found.parameters == ("up",)


def test_parameters_in_another_order() -> None:
    found = drift(rank(0, *SAME), rank(1, *SAME, tensors=DDP[::-1]))
    assert found.evidence["cause"] == "order"
    assert "parameter 0 of the model is up on rank 0 and down on rank 1" in found.title


def test_a_buffer_is_a_warning() -> None:
    tensors = (DDP[0], Replica("scale", (), "buffer"))
    apart = [state(n, (1, 5)) for n in range(4)]
    wrote = ((0, "scale", "mul_", WRITE_SITE),)
    found = drift(rank(0, *SAME, tensors=tensors, written=wrote), rank(1, *apart, tensors=tensors, written=wrote))
    assert (found.severity, found.confidence, found.parameters) == ("warning", "possible", ("scale",))
    assert [(one.role, one.site) for one in found.sites] == [("cause", WRITE_SITE)]


def test_unfinished_data_parallel_steps_are_not_compared() -> None:
    text = "RuntimeError: Expected to have finished reduction in the prior iteration before starting a new one."
    assert [f.kind for f in job_findings([rank(0, *SAME, error=text), rank(1, *DRIFTS["start"][0])])] == ["rank-failed"]


# The first bad rank


def bad(step: int, number: int, op: str = "log", kind: str = "nonfinite-forward", **more: object) -> Finding:
    return Finding(kind, "error", f"{op} gave NaN", "certain", step=step, rank=number, evidence={"op": op, **more})


@pytest.mark.parametrize(
    ("found", "first"),
    [
        ([bad(4, 0), bad(3, 1)], (1, 3)),
        ([bad(3, 0, written_by="SGD.step"), bad(3, 1)], (1, 3)),
        ([bad(2, 0, "Redistribute"), bad(2, 1, "div")], (1, 2)),
        ([bad(5, 0), bad(4, 1, kind="nonfinite-backward"), bad(6, 2)], (1, 4)),
    ],
)
def test_the_rank_where_a_nonfinite_value_originated(found: list[Finding], first: tuple[int, int]) -> None:
    (told,) = in_time(found)
    assert (told.rank, told.step) == first
    others = sorted((f for f in found if f.rank != told.rank), key=lambda f: f.step)
    assert told.evidence["then"] == [f"rank {f.rank}, step {f.step}: {f.kind}" for f in others]
    traces = [rank(f.rank or 0, findings=(dataclasses.replace(f, rank=None),)) for f in found]
    assert [(f.rank, f.step) for f in job_findings(traces)] == [first]


def test_ranks_that_are_bad_alike_share_a_finding() -> None:
    (found,) = job_findings([rank(n, findings=(bad(3, n),)) for n in range(2)])
    assert (found.rank, found.evidence["ranks"]) == (0, [0, 1])
    other = Finding("none-grad", "warning", "nothing", "certain")
    assert in_time([other, bad(3, 1)]) == [other, bad(3, 1)]


def test_the_rank_that_raised_comes_before_those_that_lost_it() -> None:
    lost = "RuntimeError: [gloo/transport/tcp/pair.cc:553] Connection closed by peer [127.0.0.1]:5527"
    (found,) = job_findings(
        [rank(0, error=lost), rank(1, error="IndexError: Target 3 is out of bounds.", site=BACKWARD_SITE)]
    )
    assert (found.kind, found.rank) == ("rank-failed", 1)
    assert [(s.role, s.site) for s in found.sites] == [("raised", BACKWARD_SITE)]


# Norms


def measured(number: int, norms: dict[str, float | None], tensors: tuple[Replica, ...]) -> Trace:
    stats = tuple(ParameterStat(name, norm, norm, None) for name, norm in norms.items())
    step = TracedStep(Step(0, 1.0, 0.5, (0,), stats), ())
    return Trace([step], Facts(seen=(Replicas(number, 2, tensors, ()),)))


def test_norms_of_sharded_parameters_are_those_of_the_whole() -> None:
    def tensors(place: int) -> tuple[Replica, ...]:
        shard = Replica("w", (4, 4), "dtensor", (place,), (2,), ("S(0)",))
        return shard, Replica("scale", (4,), "dtensor", (-1,), (2,), ("R",)), Replica("bias", (4,), "ddp")

    traces = [measured(n, {"w": 3.0 + n, "scale": 2.0, "bias": 1.5}, tensors(n)) for n in range(2)]
    assert sharded(traces)
    stats = Whole(traces)[0].parameters
    assert stats["w"] == ParameterStat("w", 5.0, 5.0, None)
    assert stats["scale"].grad == 2.0  # both have it: once
    assert stats["bias"].grad == 1.5
    nan = Whole([measured(n, {"w": (3.0, math.nan)[n]}, tensors(n)) for n in range(2)])
    assert math.isnan(nan[0].parameters["w"].grad or 0.0)


def test_a_norm_of_which_a_part_was_not_measured_is_not_known() -> None:
    parts = [(Replica("w", (4, 4), "dtensor", (place,), (2,), ("S(0)",)),) for place in range(2)]
    missing = Whole([measured(0, {"w": 3.0}, parts[0]), measured(1, {}, parts[1])])
    assert missing[0].parameters["w"].grad is None
    unknown = Whole([measured(0, {"w": 3.0}, parts[0]), measured(1, {"w": None}, parts[1])])
    assert unknown[0].parameters["w"].grad is None
