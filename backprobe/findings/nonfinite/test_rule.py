"""The rule on hand-written records."""

from __future__ import annotations

import dataclasses

import pytest
from failing import MUTATED, NODES, REUSED
from handmade import INF, NAN, at, bad_root, call, kinds, leaf, only, raised, roles, run, traced
from learning import sites_of_only

from backprobe.records import (
    BackwardCall,
    BadNode,
    BadOp,
    BadValues,
    Born,
    Derivative,
    LossGrowth,
    TensorStat,
)

LOG = BadOp(99, 99, "log", at(12), "head", 1, NAN, (TensorStat("p", (8,), "float32", zeros=2, made=True),))


def bad_forward(index: int = 0, op: BadOp = LOG, values: BadValues = NAN, **more) -> BackwardCall:
    return call(*NODES, index=index, roots=bad_root(values), bad_ops=(op,), **more)


def bad_backward(*saved: TensorStat, values: BadValues = NAN, zero: bool = True, **more) -> BackwardCall:
    return call(*NODES, bad_nodes=(BadNode(1, 0, values, zero, saved),), **more)


QUIET = {
    "a call of finite values": call(*NODES),
    "no calls": None,
    "a saved tensor that was changed, and nothing raised": call(*NODES, mutation=MUTATED),
    "a graph that is met again, and nothing raised": call(*NODES, reuse=REUSED),
    "an error before any node ran": call(*NODES, raised=raised("element 0 requires grad", None)),
    "an operation gave Inf, and the loss does not depend on it": call(*NODES, bad_ops=(LOG,)),
}

#: Kind -> a run that shows it, and the sites of the finding.
FIRES = {
    "nonfinite-forward": (traced(bad_forward()), [("cause", 12), ("failed", 90)]),
    "nonfinite-backward": (
        traced(bad_backward(TensorStat("self", (8,), "float32", zeros=2))),
        [("cause", 12), ("failed", 90)],
    ),
}


@pytest.mark.parametrize("kind", FIRES)
def test_one_run_one_finding(kind: str) -> None:
    trace, sites = FIRES[kind]
    assert sites_of_only(kind, trace) == sites


@pytest.mark.parametrize("what", QUIET)
def test_nothing_is_found_in(what: str) -> None:
    seen = QUIET[what]
    assert kinds(traced(*([seen] if seen is not None else []))) == []


def test_a_mask_is_not_the_cause_of_later_nonfinite_values() -> None:
    mask = BadOp(98, 98, "masked_fill", at(11), "", 1, INF, ())
    softmax = BadOp(99, 99, "softmax", at(12), "head", 1, NAN, (TensorStat("scores", (8,), "float32", INF, made=True),))
    found = only(traced(call(*NODES, roots=bad_root(), bad_ops=(mask, softmax))))
    assert found.sites[0].site == at(12)
    assert "1 of its 8 inputs were already Inf, put there on purpose" in found.title
    assert "everything is masked" in found.advice


def test_a_nonfinite_input_is_named() -> None:
    op = dataclasses.replace(LOG, inputs=(TensorStat("batch", (8,), "float32", NAN),))
    found = only(traced(bad_forward(op=op)))
    assert found.tensor == "batch"
    assert "NaN was already in batch, which came from outside the graph" in found.title
    inner = BadOp(0, 0, "div", at(5), "", 1, NAN, ())
    found = only(traced(bad_forward(op=dataclasses.replace(op, origin=inner))))
    assert [(s.role, s.site) for s in found.sites] == [("cause", at(5)), ("entered", at(12)), ("failed", at(90))]
    assert "div produced NaN in 2 of 8 elements outside the graph" in found.title and found.confidence == "certain"
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
    assert found.title.startswith("Mine produced")


def test_a_bad_loss_that_nothing_explains_is_possible_only() -> None:
    found = only(traced(call(*NODES, roots=bad_root())))
    assert (found.kind, found.confidence, found.evidence["seen"]) == ("nonfinite-forward", "possible", False)


@pytest.mark.parametrize(
    ("born", "title", "line", "sure"),
    [
        (
            Born(0, 1, "made", (TensorStat("self", (8,), "float32", zeros=3),), NAN),
            "log produced NaN in 2",
            12,
            "certain",
        ),
        (Born(0, 2, "made", (), None, False), "mul produced NaN in the forward", 11, "likely"),
        (
            Born(0, 2, "outside", (TensorStat("other", (8,), "float32", NAN),)),
            "mul received NaN in 2 of 8",
            11,
            "certain",
        ),
    ],
)
def test_the_graph_tells_where_a_bad_loss_began_that_nothing_saw(born: Born, title: str, line: int, sure: str) -> None:
    found = only(traced(call(*NODES, roots=bad_root()), seen=[born]))
    assert (found.kind, found.confidence, found.evidence["seen"]) == ("nonfinite-forward", sure, False)
    assert found.title.startswith(title)
    assert roles(found) == [("cause", line), ("failed", 90)]
    # What was seen of the forward says more.
    assert only(traced(bad_forward(), seen=[born])).title.startswith(
        "log produced NaN in 2 of 8 elements in the forward; "
    )


@pytest.mark.parametrize(
    ("in_closure", "title"),
    [
        (False, "weight held Inf in 1 of 8 elements when the forward began"),
        (True, "weight became Inf, between the calls of the optimizer's closure"),
    ],
)
def test_a_parameter_that_was_not_finite_already_names_no_cause(in_closure: bool, title: str) -> None:
    born = Born(0, 3, "leaf", (), INF, in_closure=in_closure)
    found = only(traced(call(*NODES, roots=bad_root()), seen=[born]))
    assert (found.kind, found.tensor, found.evidence["held"]) == ("nonfinite-forward", "weight", True)
    assert found.title.startswith(title)
    assert roles(found) == [("entered", 11), ("failed", 90)]


@pytest.mark.parametrize(
    ("saved", "zero", "how"),
    [
        ((TensorStat("result", (8,), "float32", INF),), True, "0 times Inf is NaN"),
        ((TensorStat("result", (8,), "float32", INF),), False, "its saved result was not finite"),
        ((TensorStat("self", (8,), "float32", zeros=3),), False, "its saved input holds 3 zeros"),
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


@pytest.mark.parametrize(
    ("op", "values", "too_large"), [("mul", INF, True), ("mul", NAN, False), ("log", INF, False), ("exp", INF, False)]
)
def test_a_result_that_is_too_large_is_seldom_the_mistake_of_its_line(
    op: str, values: BadValues, too_large: bool
) -> None:
    """A product of finite numbers is finite but for its size; a logarithm has a pole, and exp grows of itself."""
    seen = BadOp(99, 99, op, at(12), "head", 1, values, (TensorStat("x", (8,), "float32", made=True),))
    found = only(traced(bad_forward(op=seen, values=values)))
    assert found.evidence.get("too_large", False) is too_large
    assert ("what made the values grow" in found.advice) is too_large


@pytest.mark.parametrize(("values", "too_large"), [(INF, True), (NAN, False)])
def test_a_gradient_that_is_too_large(values: BadValues, too_large: bool) -> None:
    found = only(traced(call(*NODES, bad_nodes=(BadNode(2, 0, values, False, ()),))))
    assert found.evidence.get("too_large", False) is too_large
    assert ("too large for the dtype" in found.title) is too_large


def test_a_result_that_is_too_large_after_a_growth_of_the_loss() -> None:
    grown = LossGrowth(12, 16.0, 227, 1.5e36, (6e3, 6e10, 2e18, 1e25, 4e32))
    overflow = bad_forward(228, dataclasses.replace(LOG, op="mul", output=INF, inputs=()), INF)
    found = only(traced(overflow, seen=[grown]))
    assert found.advice.startswith(
        "The loss had grown for 215 steps before, from 16 in step 12 to 1.5e+36: look for what makes it grow from step "
        "to step, also in a state that is carried on."
    )
    assert (found.evidence["loss_grew_since"], found.evidence["loss_last"]) == (12, 1.5e36)
    assert "loss_grew_since" not in only(traced(bad_forward(228), seen=[grown])).evidence
    assert "loss_grew_since" not in only(traced(overflow, seen=[dataclasses.replace(grown, until=300)])).evidence


@pytest.mark.parametrize(("numel", "line"), [(19, 12), (21, 5)])
def test_few_values_that_an_exponential_hides_are_no_mask(numel: int, line: int) -> None:
    """The logarithm is the cause if one Inf of 19 values may be a mask; one of 21 is an accident."""
    born = BadOp(0, 0, "log", at(5), "", 1, BadValues(0, 1, numel, (numel,)), ())
    entered = BadOp(98, 98, "sub", at(11), "", 1, INF, (TensorStat("target", (numel,), "float32", INF),), born)
    log = BadOp(100, 100, "log", at(12), "head", 1, NAN, (TensorStat("p", (numel,), "float32", zeros=1, made=True),))
    nodes = (
        run("LogBackward0", 1, op="log", line=12),
        run("ExpBackward0", 2, op="exp", line=11),
        run("SubBackward0", 3, op="sub", line=11),
        leaf("weight"),
    )
    found = only(traced(call(*nodes, roots=bad_root(), bad_ops=(entered, log))))
    assert found.sites[0].site == at(line)
