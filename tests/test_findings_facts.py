"""Findings about a run as a whole, on hand-written records: hooks, checkpoints, memory, requested checks."""

from __future__ import annotations

import dataclasses

import pytest
from handmade import at, call, kinds, leaf, only, roles, run, traced

from backprobe.records import (
    CompiledRegion,
    CompiledWrong,
    Divergence,
    Finding,
    FindingSite,
    FunctionChecked,
    GradientCycle,
    GradientUse,
    HookSeen,
    RankSeen,
    RankWait,
    Recompiled,
    Recomputed,
    RegionDiffers,
    RegionGradient,
    Replica,
    Replicas,
    ReplicaState,
    Retained,
    SavedBytes,
    SavedMemory,
    SavedModule,
    SavedMoment,
    SavedUnknown,
    SilentWrite,
    StaleRead,
)

STEP = call(run("SumBackward0", 1, op="sum"), leaf("weight"))
HOOK = HookSeen("output", ("block",), ("dict",), at(5), None)
STALE = StaleRead("net.weight", "tensor", at(30), at(5), True, 1)
REGION = RegionDiffers("values", at(50), at(51), at(90), "block.norm", "relu", "1", "2", "", 0, (0,))
RECOMPUTED_BUFFER = Recomputed(("block.norm",), ("block.norm.running_mean",), at(50))
GRADIENT = RegionGradient(at(50), "block", ("block.weight", "input 0"), 0.25, False)
MISCOMPILED = CompiledWrong("forward", "gelu", at(12), "act", "forward", 1e-2, 1e-7, True, "", 0, at(10))
CHECKED = FunctionChecked("Mine", "", at(11), at(40), "gradient", 0, 1.0, 2.0, "")
DIVERGED = Divergence("act", "LeakyReLU", 0.5, ("negative_slope: 0.1 and 0.2",), ("a",), at(8))
BYTES = SavedBytes(at(11), "relu", "act", 2048, 2, ("result",), "float32")
RETAINED = Retained("losses", "a list", at(70), "", 7)
CYCLE = GradientCycle(at(71), ("weight",))
WRITE = SilentWrite("mask", "mul_", at(20), "mul", at(11), at(90), "", "MulBackward0", 0)

AGAIN_AND_AGAIN = tuple(Recompiled(step, f"self.calls == {step}", at(12)) for step in range(1, 5))
REGIONS = CompiledRegion("forward", at(10), None, 5, 5, 0, 7, 2.5, 0, AGAIN_AND_AGAIN)


def drifting(rank: int) -> Replicas:
    """A rank with a gradient of its own."""
    state = ReplicaState(0, 0, (1,), (rank + 5,), (rank + 7,), at(62))
    return Replicas(rank, 2, (Replica("weight", (2,), "ddp"),), (state,))


def pacing(rank: int) -> RankSeen:
    """Rank 1 comes late to each collective."""
    times = tuple(50.0 + n + 0.5 * rank for n in range(18))
    return RankSeen(rank, 100 + rank, trail=((50.3, at(63)),), arrivals=(("0", 1, times),))


WAIT = RankWait("all_reduce", at(60), 50.0, 4.0, "never")

#: Kind -> what was seen in a run that shows it, the topic to ask for, the sites of the finding.
FIRES = {
    "hook-inplace-conflict": ([HookSeen("inplace", ("block",), (), at(5), at(6))], "", [("hook", 5), ("mutated", 6)]),
    "hook-never-fires": ([HOOK], "", [("hook", 5)]),
    "legacy-hook-partial": ([HookSeen("legacy", ("block",), ("9",), at(5), None)], "", [("hook", 5)]),
    "hook-order": ([STALE], "", [("stale", 30), ("hook", 5)]),
    "checkpoint-mismatch": ([REGION], "", [("cause", 51), ("region", 50), ("failed", 90)]),
    "checkpoint-gradient-differs": ([GRADIENT], "checkpoints", [("region", 50)]),
    "checkpoint-side-effect": ([RECOMPUTED_BUFFER], "", [("region", 50)]),
    "wrong-backward": ([CHECKED], "functions", [("applied", 11), ("backward", 40)]),
    "wrong-double-backward": (
        [dataclasses.replace(CHECKED, what="second derivative")],
        "functions",
        [("applied", 11), ("backward", 40)],
    ),
    "wrong-compiled": ([MISCOMPILED], "compiled", [("cause", 12), ("compiled", 10)]),
    "first-divergence": ([DIVERGED], "divergence", [("cause", 8)]),
    "saved-memory": ([BYTES], "memory", [("cause", 11)]),
    "graph-retained": ([RETAINED], "", [("held", 70)]),
    "reference-cycle": ([CYCLE], "", [("held", 71)]),
    "silent-mutation": ([WRITE], "", [("mutated", 20), ("saved", 11), ("failed", 90)]),
    "gradient-not-cleared": (
        [GradientUse("Adam", "again", 3, at(33), at(32))],
        "",
        [("stepped", 33), ("backward", 32)],
    ),
    "gradient-not-used": (
        [GradientUse("Adam", "cleared", 0, at(33), at(32), at(31), at(5))],
        "",
        [("stepped", 33), ("cleared", 31), ("backward", 32), ("optimizer", 5)],
    ),
    "recompiled-often": ([REGIONS], "", [("cause", 12), ("compiled", 10)]),
    "rank-failed": (
        [RankSeen(0, 100, signal=15), RankSeen(1, 101, error="ValueError: bad batch", raised=at(61))],
        "",
        [("raised", 61)],
    ),
    "rank-desync": ([RankSeen(0, 100, (WAIT,))], "", [("waiting", 60)]),
    "rank-drift": ([drifting(0), drifting(1)], "", [("backward", 62)]),
    "rank-outlier": ([pacing(0), pacing(1)], "", [("late", 63)]),
}


@pytest.mark.parametrize("kind", FIRES)
def test_one_record_one_finding(kind: str) -> None:
    seen, ask, sites = FIRES[kind]
    trace = traced(STEP, seen=seen, ask=ask)
    assert kinds(trace) == [kind]
    assert roles(only(trace)) == sites
    assert only(trace).advice or kind == "rank-desync"


@pytest.mark.parametrize("kind", [kind for kind, (_, ask, _) in FIRES.items() if ask])
def test_requested_checks_report_only_on_request(kind: str) -> None:
    assert kinds(traced(STEP, seen=FIRES[kind][0])) == []


# Hooks


def test_why_a_hook_never_fires() -> None:
    late = only(traced(STEP, seen=[dataclasses.replace(HOOK, reason="compiled")]))
    assert (late.kind, late.confidence) == ("hook-never-fires", "likely") and "compiled code does not run" in late.title
    forward = only(traced(STEP, seen=[dataclasses.replace(HOOK, reason="forward", bypass=at(6))]))
    assert "was not called as a module" in forward.title
    assert roles(forward) == [("hook", 5), ("bypass", 6)]
    several = only(traced(STEP, seen=[dataclasses.replace(HOOK, modules=("", "b"), site=None)]))
    assert (several.module, several.confidence) == (None, "likely")
    assert several.title.startswith("the backward hook on the model itself, b never fires")


def test_one_hook_that_reads_on_several_lines_is_one_finding() -> None:
    second = dataclasses.replace(STALE, stale=at(31), on="module", empty=False)
    found = only(traced(STEP, seen=[STALE, second]))
    assert roles(found) == [("stale", 30), ("stale", 31), ("hook", 5)]
    assert "it sees None" in found.title
    other = dataclasses.replace(second, hook=None)
    assert kinds(traced(STEP, seen=[STALE, other])) == ["hook-order"] * 2


# Checkpoints


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("extra", "relu ran in the recomputation of a checkpoint, and had not run in the forward"),
        ("missing", "relu ran in the forward of a checkpointed region, and not when it was recomputed"),
        ("other", "ran 2 where the forward had run 1"),
        ("unknown", "kept other tensors than the forward"),
        ("arguments", "relu was called with 2 in the recomputation"),
        ("written", "the gradients are those of other weights"),
        ("frozen", "a parameter that relu uses 2 in the recomputation"),
        ("shape", "relu gave a tensor of shape 2"),
        ("dtype", "relu gave a tensor of dtype 2"),
        ("grad", "relu gave a tensor that 2"),
        ("values", "relu gave values of 2"),
    ],
)
def test_how_a_region_differs(how: str, words: str) -> None:
    found = only(traced(STEP, seen=[dataclasses.replace(REGION, how=how, changed=at(55))]))
    assert words in found.title
    assert (found.severity, found.confidence) == ("warning", "likely")
    changed = [("cause", 51), ("changed", 55)] if how == "arguments" else [("cause", 55), ("cause", 51)]
    assert roles(found)[:2] == changed


def test_a_region_that_raised_is_an_error() -> None:
    found = only(traced(STEP, seen=[dataclasses.replace(REGION, raised="CheckpointError: x\nTip: y")]))
    assert (found.severity, found.confidence) == ("error", "certain")
    assert found.evidence["error"] == "CheckpointError: x"


def test_state_that_changes_twice_is_the_finding_not_its_values() -> None:
    assert kinds(traced(STEP, seen=[REGION, RECOMPUTED_BUFFER])) == ["checkpoint-side-effect"]
    shape = dataclasses.replace(REGION, how="shape")
    assert kinds(traced(STEP, seen=[shape, RECOMPUTED_BUFFER])) == ["checkpoint-mismatch", "checkpoint-side-effect"]
    elsewhere = dataclasses.replace(REGION, module="head")
    assert kinds(traced(STEP, seen=[elsewhere, RECOMPUTED_BUFFER])) == ["checkpoint-mismatch"]
    momentum = only(traced(STEP, seen=[RECOMPUTED_BUFFER])).advice
    assert "halve its momentum" in momentum
    assert only(traced(STEP, seen=[dataclasses.replace(RECOMPUTED_BUFFER, buffers=("count",))])).advice != momentum


def test_what_a_checkpoint_does_to_gradients_when_it_is_asked() -> None:
    asked = traced(STEP, seen=[REGION, GRADIENT], ask="checkpoints")
    assert kinds(asked) == ["checkpoint-gradient-differs"]
    assert only(asked).title.startswith("the gradients are not those of the forward: relu gave values")
    assert only(asked).sites[0].role == "region"
    raising = dataclasses.replace(REGION, raised="CheckpointError")
    assert kinds(traced(STEP, seen=[raising, GRADIENT], ask="checkpoints")) == ["checkpoint-mismatch"]
    missing = only(traced(STEP, seen=[dataclasses.replace(GRADIENT, missing=True)], ask="checkpoints"))
    assert "of block.weight, input 0 by up to 25 % (one of them is missing)" in missing.title
    assert missing.parameters == ("block.weight",)


# What is asked for


def test_a_gradient_that_is_meant_is_information() -> None:
    meant = dataclasses.replace(CHECKED, why="the forward is flat: a straight-through estimate")
    found = only(traced(STEP, seen=[meant], ask="functions"))
    assert (found.severity, found.confidence) == ("info", "likely")
    assert "disagrees with finite differences: the forward is flat" in found.title


def test_a_divergence_names_the_differing_settings() -> None:
    found = only(traced(STEP, seen=[DIVERGED], ask="divergence"))
    assert "two models of one structure first differ at act, a LeakyReLU (negative_slope: 0.1 and 0.2)" in found.title
    bare = only(traced(STEP, seen=[dataclasses.replace(DIVERGED, site=None, attributes=())], ask="divergence"))
    assert bare.sites == ()


def saved(*seen) -> Finding:
    return only(traced(STEP, seen=seen, ask="memory"))


def test_memory_held_anyway_is_separate() -> None:
    held = dataclasses.replace(BYTES, bytes=512, holder="parameter", op="linear")
    found = saved(BYTES, held)
    assert found.title == (
        "2 KiB are kept for backward, 2 KiB of them by relu; what else is saved is held anyway (512 B by parameters)"
    )
    assert found.evidence["held_anyway"] == {"parameter": 512}
    assert saved(held).title == "what is kept for backward is held anyway: 512 B by parameters"
    assert kinds(traced(STEP, seen=[dataclasses.replace(BYTES, bytes=0)], ask="memory")) == []


def test_tables_add_up_to_the_total() -> None:
    rows = [dataclasses.replace(BYTES, op=f"op{i}", site=at(i), bytes=100 + i) for i in range(40)]
    evidence = saved(*rows).evidence
    for table in ("by_op", "by_line", "by_module", "by_dtype"):
        assert sum(evidence[table].values()) == evidence["total_bytes"] == sum(r.bytes for r in rows)
    assert "(rest)" in evidence["by_op"]


def test_memory_that_checkpointing_would_save() -> None:
    start = SavedMoment("", None, 4000, -1)
    blocks = [SavedModule(f"blocks.{i}", "Block", 1, 1000, 100) for i in range(3)]
    whole = SavedModule("blocks", "Sequential", 1, 3200, 100)
    memory = SavedMemory(5, 0, 1, 10, 3, (), (start,), (), (SavedUnknown("tensors", 2, "packed"),), (whole, *blocks))
    found = saved(BYTES, memory)
    assert found.step == 5
    assert "Checkpointing each of the 3 Block (blocks.0, ...) would save about 2.64 KiB" in found.advice
    assert "2 saved tensors could not be measured" in found.advice
    (row,) = found.evidence["checkpoint"]
    assert (row["count"], row["saves_bytes"]) == (3, 2700)


# Memory that stays, and what is written behind autograd's back


def test_what_keeps_graphs_without_a_name_or_line() -> None:
    found = only(traced(STEP, seen=[dataclasses.replace(RETAINED, holder="", site=None)]))
    assert found.title.startswith("a list keeps the graphs of earlier steps alive: 7")
    assert (found.confidence, found.tensor, found.sites) == ("likely", None, ())


def test_a_cycle_of_unknown_origin_is_not_reported() -> None:
    assert kinds(traced(STEP, seen=[dataclasses.replace(CYCLE, site=None)])) == []


def test_memory_that_was_written_from_outside() -> None:
    found = only(traced(STEP, seen=[dataclasses.replace(WRITE, op="", site=None)]))
    assert (found.confidence, found.sites[0].role) == ("likely", "saved")
    assert "a NumPy array shares it" in found.title


# Several processes (more in test_ranks.py)

MINE = Finding("none-grad", "warning", "nothing", "certain", sites=(FindingSite("cut", at(60)),))


def test_what_a_child_found_stands_among_ours() -> None:
    trace = traced(STEP, seen=[RETAINED, RankSeen(1, 101, findings=(MINE,)), WRITE])
    assert kinds(trace) == ["silent-mutation", "none-grad", "graph-retained"]
    assert [f.rank for f in trace.findings] == [None, 1, None]


def test_a_kind_that_only_the_child_knew_comes_last_of_its_severity() -> None:
    other = dataclasses.replace(MINE, kind="of-a-plugin")
    trace = traced(STEP, seen=[RankSeen(1, 101, findings=(other,)), RETAINED, BYTES], ask="memory")
    assert kinds(trace) == ["graph-retained", "of-a-plugin", "saved-memory"]


def test_statistics_that_a_normalisation_changes() -> None:
    seen = dataclasses.replace(WRITE, tensor="norm.running_mean", op="batch_norm", saver="batch_norm")
    found = only(traced(STEP, seen=(seen,)))
    assert found.title.startswith("batch_norm in train mode changed norm.running_mean, which batch_norm in eval mode")
    assert "train mode again" in found.advice and "through .data" not in found.title


def test_divergence_from_float64() -> None:
    lost = Divergence("norm", "", 3.0, site=at(8), against="float64", what="what it adds up cancels", op="sub.Tensor")
    found = only(traced(STEP, seen=(lost,), ask="divergence"))
    assert found.title == "departs from float64 at sub.Tensor in norm: what it adds up cancels, off by 3"
    assert roles(found) == [("cause", 8)] and "log1p" in found.advice and found.evidence["against"] == "float64"
    wrong = dataclasses.replace(lost, op="FBackward", node="FBackward", phase="backward", other=at(9))
    found = only(traced(STEP, seen=(wrong,), ask="divergence"))
    assert roles(found) == [("cause", 8), ("op", 9)] and "--check functions" in found.advice
    assert (found.node, found.evidence["direction"]) == ("FBackward", "backward")


def test_a_random_number_before_what_differs() -> None:
    seen = dataclasses.replace(REGION, drawn=at(49), raised="another shape")
    found = only(traced(STEP, seen=(seen,)))
    assert roles(found)[:2] == [("cause", 49), ("cause", 51)] and found.confidence == "likely"
    assert "a random number is drawn before it" in found.title and "torch's own generator" in found.advice


# What was compiled


def test_a_function_that_is_compiled_for_a_few_shapes_is_left_alone() -> None:
    few = dataclasses.replace(REGIONS, recompiled=AGAIN_AND_AGAIN[:2])
    same_step = dataclasses.replace(REGIONS, recompiled=(AGAIN_AND_AGAIN[0],) * 6)
    assert kinds(traced(STEP, seen=[few, same_step])) == []


def test_torch_has_given_up_on_a_function() -> None:
    limit = dataclasses.replace(REGIONS, recompiled=AGAIN_AND_AGAIN[:1], limit=True, skipped="recompile limit")
    found = only(traced(STEP, seen=[limit]))
    assert "runs it in Python from step 1 on" in found.title and found.evidence["limit"] is True
    shapes = Recompiled(3, "tensor 'x' size mismatch at index 0. expected 3, actual 4", None)
    found = only(traced(STEP, seen=[dataclasses.replace(limit, recompiled=(shapes,), after=14)]))
    assert "mark_dynamic" in found.advice and roles(found) == [("compiled", 10)] and "after line 14" in found.title
