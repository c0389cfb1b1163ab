"""Findings of single backward calls, on hand-written records: non-finite values, errors, and which suppresses which."""

from __future__ import annotations

import dataclasses

import pytest
from handmade import INF, NAN, at, bad_root, call, kinds, leaf, only, raised, roles, run, traced

from backprobe.records import (
    BackwardCall,
    BadNode,
    BadOp,
    BadValues,
    Born,
    Derivative,
    FailedAllocation,
    Finding,
    Mutation,
    RankSeen,
    RankWait,
    RegionDiffers,
    Reuse,
    StaleRead,
    TensorStat,
)
from backprobe.torch_texts import REENTRANT_NODE

NODES = (
    run("SumBackward0", 1, op="sum", line=13),
    run("LogBackward0", 2, op="log", line=12, module="head"),
    run("MulBackward0", 3, op="mul", line=11),
    leaf("weight"),
)
LOG = BadOp(99, 99, "log", at(12), "head", 1, NAN, (TensorStat("p", (8,), "float32", zeros=2, made=True),))


def bad_forward(index: int = 0, op: BadOp = LOG, values: BadValues = NAN, **more) -> BackwardCall:
    return call(*NODES, index=index, roots=bad_root(values), bad_ops=(op,), **more)


def bad_backward(*saved: TensorStat, values: BadValues = NAN, zero: bool = True, **more) -> BackwardCall:
    return call(*NODES, bad_nodes=(BadNode(1, 0, values, zero, saved),), **more)


def wrong(text: str = "no backward here", index: int = 0, node: int = 2, **more) -> BackwardCall:
    return call(*NODES, index=index, raised=raised(text, node, at(30)), **more)


OOM = "CUDA out of memory. Tried to allocate 4.00 KiB."
MUTATED = Mutation("hidden", (8,), 0, 1, "add_", at(20, "hidden += 1"), "", None)
REUSED = Reuse(0, at(91), 0, 1, 2)
SHAPE = "Function HalfBackward returned an invalid gradient at index 0 - got [2] but expected [3]"
HALF = (run("SumBackward0", 1, op="sum", line=13), run("HalfBackward", 2, op="Function.apply", line=12), leaf("weight"))
TWICE = "Expected to mark a variable ready only once. Parameter at index 0 with name module.weight has been marked"

#: Kind -> a call that shows it; the sites of the finding.
FIRES = {
    "nonfinite-forward": (bad_forward(), [("cause", 12), ("failed", 90)]),
    "nonfinite-backward": (
        bad_backward(TensorStat("self", (8,), "float32", zeros=2)),
        [("cause", 12), ("failed", 90)],
    ),
    "inplace": (wrong(mutation=MUTATED), [("mutated", 20), ("saved", 11), ("failed", 90)]),
    "second-backward": (wrong(reuse=REUSED), [("reused", 12), ("freed", 91), ("failed", 90)]),
    "wrong-backward-shape": (
        call(*HALF, raised=raised(SHAPE, 1, at(40))),
        [("applied", 12), ("backward", 40), ("failed", 90)],
    ),
    "out-of-memory": (
        wrong(OOM, allocation=FailedAllocation(4096, ((0, 3000), (1, 1000)), 500, 400)),
        [("saved", 13), ("saved", 12), ("allocated", 11), ("backward", 30), ("failed", 90)],
    ),
    "backward-error": (wrong(), [("cause", 11), ("backward", 30), ("failed", 90)]),
    "ddp-ready-twice": (wrong(TWICE), [("failed", 90)]),
}


@pytest.mark.parametrize("kind", FIRES)
def test_one_call_one_finding(kind: str) -> None:
    seen, sites = FIRES[kind]
    trace = traced(seen)
    assert kinds(trace) == [kind]
    assert roles(only(trace)) == sites
    assert only(trace).advice


def test_a_loss_that_is_no_scalar() -> None:
    found = only(traced(wrong("grad can be implicitly created only for scalar outputs", node=0)))
    assert (found.kind, roles(found)[0]) == ("backward-error", ("cause", 13))
    assert found.title.startswith("the backward was started from sum, which gives more than one number")


def test_an_error_of_a_node_that_no_line_made() -> None:
    seen = call(run("torch::autograd::Error", 1), leaf("weight"), raised=raised("twice", 0))
    found = only(traced(seen))
    assert roles(found) == [("failed", 90)]
    assert "No line of the forward made this node" in found.advice


def test_a_graph_that_two_losses_share_is_named_where_it_was_made() -> None:
    found = only(traced(wrong(reuse=dataclasses.replace(REUSED, node=None, shared=True))))
    assert roles(found) == [("reused", 11), ("freed", 91), ("failed", 90)]
    assert found.title.startswith("two losses share mul")
    again = only(traced(wrong(reuse=dataclasses.replace(REUSED, node=None))))
    assert roles(again)[0] == ("reused", 90)


QUIET = {
    "a call of finite values": call(*NODES),
    "no calls": None,
    "a saved tensor that was changed, and nothing raised": call(*NODES, mutation=MUTATED),
    "a graph that is met again, and nothing raised": call(*NODES, reuse=REUSED),
    "an error before any node ran": call(*NODES, raised=raised("element 0 requires grad", None)),
    "an operation gave Inf, and the loss does not depend on it": call(*NODES, bad_ops=(LOG,)),
}


@pytest.mark.parametrize("what", QUIET)
def test_nothing_is_found_in(what: str) -> None:
    seen = QUIET[what]
    assert kinds(traced(*([seen] if seen is not None else []))) == []


# Values that are not finite


def test_a_mask_is_not_the_cause_of_later_nonfinite_values() -> None:
    mask = BadOp(98, 98, "masked_fill", at(11), "", 1, INF, ())
    softmax = BadOp(99, 99, "softmax", at(12), "head", 1, NAN, (TensorStat("scores", (8,), "float32", INF, made=True),))
    found = only(traced(call(*NODES, roots=bad_root(), bad_ops=(mask, softmax))))
    assert found.sites[0].site == at(12)
    assert "its input held 1 Inf of 8 elements already, put there on purpose" in found.title
    assert "everything is masked" in found.advice


def test_a_nonfinite_input_is_named() -> None:
    op = dataclasses.replace(LOG, inputs=(TensorStat("batch", (8,), "float32", NAN),))
    found = only(traced(bad_forward(op=op)))
    assert found.tensor == "batch"
    assert "it was already in batch, which came from outside the graph" in found.title
    inner = BadOp(0, 0, "div", at(5), "", 1, NAN, ())
    found = only(traced(bad_forward(op=dataclasses.replace(op, origin=inner))))
    assert [(s.role, s.site) for s in found.sites] == [("cause", at(5)), ("entered", at(12)), ("failed", at(90))]
    assert "div gave 2 NaN of 8 elements outside the graph" in found.title and found.confidence == "certain"
    guessed = only(traced(bad_forward(op=dataclasses.replace(op, origin=inner, guessed=True))))
    assert guessed.confidence == "likely"


def test_an_inf_that_was_computed_is_not_taken_for_a_mask() -> None:
    born = BadOp(0, 0, "log", at(5), "", 1, INF, ())
    entered = BadOp(98, 98, "sub", at(11), "", 1, INF, (TensorStat("target", (8,), "float32", INF),), born)
    product = BadOp(99, 99, "mul", at(12), "head", 1, NAN, (TensorStat("", (8,), "float32", INF, made=True),))
    found = only(traced(call(*NODES, roots=bad_root(), bad_ops=(entered, product))))
    assert [s.site for s in found.sites[:2]] == [at(5), at(11)]
    softmax = dataclasses.replace(product, op="softmax")  # the log of a mask of zeros and ones
    assert only(traced(call(*NODES, roots=bad_root(), bad_ops=(entered, softmax)))).sites[0].site == at(5)
    row = dataclasses.replace(entered, output=BadValues(0, 8, 8, (8,)))  # all of it is masked
    assert only(traced(call(*NODES, roots=bad_root(), bad_ops=(row, softmax)))).sites[0].site == at(12)


def test_an_intentionally_excluded_state_is_not_the_cause_of_a_nonfinite_backward() -> None:
    """The loss is finite, so the Inf of the forward was meant: the node that made NaN of it is the cause."""
    added = BadOp(98, 98, "add", at(11), "", 1, INF, (TensorStat("alpha", (8,), "float32", INF),))
    bad = BadNode(0, 0, NAN, False, (TensorStat("self", (8,), "float32", INF, made=True),))
    found = only(traced(call(*NODES, bad_ops=(added,), bad_nodes=(bad,))))
    assert (found.kind, found.sites[0].site) == ("nonfinite-backward", NODES[0].site)


def test_a_node_of_a_double_backward_is_named_after_its_forward_op() -> None:
    bad = BadNode(0, 0, NAN, False, (), Derivative("pow", at(5), "repulsion"))
    found = only(traced(call(*NODES, bad_nodes=(bad,))))
    assert found.module == "repulsion" and "the backward of the derivative of pow" in found.title
    assert [(s.role, s.site) for s in found.sites[:2]] == [("cause", at(5)), ("derived", NODES[0].site)]


def test_a_constant_in_the_data_is_named_where_it_goes_in() -> None:
    put = BadOp(0, 0, "__setitem__", at(5), "", 1, NAN, ())
    op = dataclasses.replace(LOG, inputs=(TensorStat("batch", (8,), "float32", NAN),), origin=put)
    assert only(traced(bad_forward(op=op))).sites[0].site == at(12)


def test_a_custom_function_with_an_unobserved_forward() -> None:
    nodes = (
        run("LogBackward0", 1, op="log", line=12),
        run("MineBackward", 2, op="Function.apply", line=11),
        leaf("weight"),
    )
    op = BadOp(100, 100, "log", at(12), "", 1, NAN, (TensorStat("x", (8,), "float32", NAN, made=True),))
    found = only(traced(call(*nodes, roots=bad_root(), bad_ops=(op,))))
    assert found.sites[0].site == at(11)
    assert found.title.startswith("Mine gave")


def test_a_bad_loss_that_nothing_explains_is_possible_only() -> None:
    found = only(traced(call(*NODES, roots=bad_root())))
    assert (found.kind, found.confidence, found.evidence["seen"]) == ("nonfinite-forward", "possible", False)


def test_an_error_in_a_derivative_of_a_derivative_is_about_the_forward() -> None:
    failed = dataclasses.replace(raised("not implemented", 2), of=Derivative("cdist", at(7), "lift"))
    found = only(traced(call(*NODES, raised=failed)))
    assert (found.kind, found.module, roles(found)) == (
        "backward-error",
        "lift",
        [("cause", 7), ("derived", 11), ("failed", 90)],
    )
    assert "which is the derivative of cdist" in found.title


@pytest.mark.parametrize(
    ("born", "title", "line", "sure"),
    [
        (Born(0, 1, "made", (TensorStat("self", (8,), "float32", zeros=3),), NAN), "log gave 2 NaN", 12, "certain"),
        (Born(0, 2, "made", (), None, False), "mul gave NaN in the forward", 11, "likely"),
        (Born(0, 2, "outside", (TensorStat("other", (8,), "float32", NAN),)), "mul took in 2 NaN of 8", 11, "certain"),
        (Born(0, 3, "leaf", (), INF), "weight held 1 Inf of 8 elements", 11, "certain"),
    ],
)
def test_the_graph_tells_where_a_bad_loss_began_that_nothing_saw(born: Born, title: str, line: int, sure: str) -> None:
    found = only(traced(call(*NODES, roots=bad_root()), seen=[born]))
    assert (found.kind, found.confidence, found.evidence["seen"]) == ("nonfinite-forward", sure, False)
    assert found.title.startswith(title)
    assert roles(found) == [("cause", line), ("failed", 90)]
    # What was seen of the forward says more.
    assert only(traced(bad_forward(), seen=[born])).title.startswith("log gave 2 NaN of 8 elements in the forward, and")


@pytest.mark.parametrize(
    ("saved", "zero", "how"),
    [
        ((TensorStat("result", (8,), "float32", INF),), True, "0 times Inf is NaN"),
        ((TensorStat("result", (8,), "float32", INF),), False, "its saved result was not finite"),
        ((TensorStat("self", (8,), "float32", zeros=3),), False, "its saved self holds zeros"),
        ((), False, "its derivative is not finite"),
    ],
)
def test_how_a_backward_made_it(saved: tuple, zero: bool, how: str) -> None:
    found = only(traced(bad_backward(*saved, zero=zero)))
    assert (found.kind, found.module, found.node) == ("nonfinite-backward", "head", "LogBackward0")
    assert how in found.title


def test_a_bad_gradient_whose_value_was_bad_before() -> None:
    early = BadOp(98, 98, "mul", at(11), "", 1, INF, ())
    found = only(traced(call(*NODES, bad_nodes=(BadNode(1, 0, NAN, False, ()),), bad_ops=(early,))))
    assert (found.kind, found.sites[0].site) == ("nonfinite-forward", at(11))
    assert found.evidence["first_bad_gradient"] == "LogBackward0"


def test_only_the_first_of_consecutive_calls_is_reported() -> None:
    other = dataclasses.replace(LOG, op="sqrt", site=at(7))
    assert kinds(traced(bad_forward(0), bad_forward(1, other))) == ["nonfinite-forward"]
    found = traced(bad_forward(0), call(*NODES, index=1), bad_forward(2, other)).findings
    assert [f.sites[0].site.line for f in found] == [12, 7]


def test_a_loss_scaler_may_look_for_its_scale() -> None:
    scaled = {"values": INF, "op": dataclasses.replace(LOG, first=100, seq=100, output=INF)}
    skips = [bad_forward(i, arguments={"loss_scale": "65536"}, **scaled) for i in range(20)]
    assert kinds(traced(*skips[:19])) == []
    (found,) = traced(*skips).findings
    assert (found.step, found.evidence["loss_scale"]) == (19, "65536")
    assert kinds(traced(*skips[:19], call(*NODES, index=19), *skips[:1])) == []
    assert kinds(traced(bad_forward(0, **scaled))) == ["nonfinite-forward"]


# Errors


def test_an_in_place_write_is_shown_as_in_the_source() -> None:
    assert only(traced(wrong(mutation=MUTATED))).title.startswith("'hidden += 1' (add_) changed hidden that mul")
    unseen = dataclasses.replace(MUTATED, op="", site=None)
    found = only(traced(wrong(mutation=unseen)))
    assert (found.confidence, found.sites[0].role) == ("likely", "saved")
    assert "did not see" in found.title
    advice = {
        op: only(traced(wrong(mutation=dataclasses.replace(MUTATED, op=op)))).advice
        for op in ("SGD.step", "embedding", "__setitem__", "relu_")
    }
    assert len(set(advice.values())) == 4
    kept = only(traced(wrong(mutation=dataclasses.replace(MUTATED, region=at(8)))))
    assert "that the checkpoint had saved" in kept.title
    assert ("saved", 8) in roles(kept)


def test_a_graph_that_was_run_already() -> None:
    again = only(traced(wrong(reuse=dataclasses.replace(REUSED, node=None))))
    assert "this graph was run and freed already, by the backward of the same step" in again.title
    assert again.sites[0].site == at(90)
    earlier = only(traced(call(*NODES, index=0), wrong(index=1, reuse=REUSED)))
    assert "log took a tensor of step 0 (made by mul)" in earlier.title


def test_a_wrong_shape_is_of_a_custom_function_only() -> None:
    assert kinds(traced(call(*NODES, raised=raised(SHAPE.replace("HalfBackward", "MulBackward0"), 2)))) == [
        "backward-error"
    ]
    count = "function HalfBackward returned an incorrect number of gradients (expected 1, got 2)"
    # No node was known to run, so the rule searches for the function that the text names.
    assert kinds(traced(call(*HALF, raised=raised(count, None)))) == ["wrong-backward-shape"]


def test_an_error_without_text() -> None:
    found = only(traced(wrong("")))
    assert found.title == "MulBackward0 made by mul raised RuntimeError in the backward"


def test_reentrant_checkpoints_that_share_parameters() -> None:
    """Each calls backward for its region."""
    regions = [run(REENTRANT_NODE, number, op="Function.apply", line=12) for number in (3, 4)]
    found = only(traced(call(*NODES, *regions, raised=raised(TWICE, 2, at(30)))))
    assert roles(found) == [("failed", 90), ("checkpointed", 12)]
    assert found.title.startswith(
        "2 reentrant checkpoints of one forward, each with a backward call of its own, reach "
    )
    assert "use_reentrant=False" in found.advice


def test_two_calls_that_reach_the_same_parameters() -> None:
    first = call(*NODES, index=0, step=0, site=at(89))
    found = only(traced(first, wrong(TWICE, 1, step=0)))
    assert (found.confidence, found.parameters) == ("certain", ("weight",))
    assert roles(found) == [("failed", 90), ("first", 89)]
    assert only(traced(first, wrong(TWICE, 1, step=1))).confidence == "likely"
    assert kinds(traced(first, wrong(TWICE, 1, step=0, inside=0))) == []


# What silences what

REGION = RegionDiffers("extra", at(50), at(51), at(90), "block", "relu", "", "", "", 0, (0,))


def test_an_explained_error_is_not_reported_again() -> None:
    explained = wrong(mutation=MUTATED)
    assert kinds(traced(explained)) == ["inplace"]
    # In that call only.
    assert kinds(traced(explained, wrong(index=1))) == ["inplace", "backward-error"]
    assert kinds(traced(wrong(), seen=[REGION])) == ["checkpoint-mismatch"]
    assert kinds(traced(wrong(index=1), seen=[REGION])) == ["backward-error", "checkpoint-mismatch"]
    stale = StaleRead("weight", "tensor", at(30), None, True, 0)
    assert kinds(traced(wrong(), seen=[stale])) == ["hook-order"]
    elsewhere = dataclasses.replace(stale, stale=at(31))
    assert kinds(traced(wrong(), seen=[elsewhere])) == ["backward-error", "hook-order"]


def test_the_error_of_a_collective_is_its_consequence() -> None:
    stuck = RankWait("all_reduce", at(60), 50.0, 4.0, "raised")
    child = Finding("backward-error", "error", "in a child", "certain")
    ranks = [RankSeen(0, 100, (stuck,)), RankSeen(1, 101, findings=(child,))]
    assert kinds(traced(wrong(), seen=ranks)) == ["rank-desync"]
    calm = dataclasses.replace(ranks[0], waits=(dataclasses.replace(stuck, ended="returned"),))
    assert kinds(traced(wrong(), seen=[calm, ranks[1]])) == ["backward-error", "backward-error"]


def test_the_same_finding_in_several_calls_is_reported_once() -> None:
    assert kinds(traced(*(wrong(index=i) for i in range(3)))) == ["backward-error"]


def test_the_line_that_handed_an_old_tensor_to_a_function() -> None:
    there = dataclasses.replace(at(44), function="train")
    handed = dataclasses.replace(REUSED, carried=there)
    one, other = (only(traced(wrong(reuse=reuse))) for reuse in (REUSED, handed))
    assert [role for role, _ in roles(one)].count("reused") == 1
    assert roles(other)[:2] == [roles(one)[0], ("reused", 44)]
