"""The rule on hand-written records."""

from __future__ import annotations

import dataclasses

import pytest
from handmade import at, call, kinds, leaf, only, parameter, raised, roles, run, traced
from learning import OFF, STEP, lost, reached, sites_of_only

from backprobe import Trace
from backprobe.records import BackwardCall, Cut, FrozenLoss, StoppedLearning, StraightThroughLoss

NO_GRAPH = call(raised=raised("element 0 of tensors does not require grad and does not have a grad_fn", None))


def none(*parameters, seen=(), calls=(STEP,)) -> Trace:
    return traced(*calls, parameters=[*reached("a.weight"), *parameters], seen=seen)


#: Kind -> a run that shows it, and the sites of the finding.
FIRES = {
    "none-grad": (
        traced(STEP, parameters=[*reached("a.weight"), *lost("b.weight", defined=at(4))]),
        [("defined", 4)],
    ),
}


@pytest.mark.parametrize("kind", FIRES)
def test_one_run_one_finding(kind: str) -> None:
    trace, sites = FIRES[kind]
    assert sites_of_only(kind, trace) == sites


def test_why_a_parameter_got_none() -> None:
    assert only(none(*lost("a.bias"))).evidence["reason"] == "unused"
    assert only(none(*lost("b.weight"))).evidence["reason"] == "output"
    assert only(none(*lost("b.weight", calls=0))).evidence["reason"] == "uncalled"
    both = only(none(*lost("b.0.weight", "b.2.weight", calls=0)))
    assert (both.module, both.parameters) == ("b", ("b.0.weight", "b.2.weight"))


@pytest.mark.parametrize(
    "parameters",
    [
        lost("b.weight", requires_grad=False),
        lost("b.weight", trained=False),
        lost("b.weight", trained=None, root="other"),
        lost("b.weight", calls=0, quiet_calls=4),
        reached("b.weight"),
    ],
    ids=["frozen", "left out of the optimizer", "of a model that nobody trains", "evaluated only", "reached"],
)
def test_none_is_no_finding_where_the_parameter_is(parameters: list) -> None:
    assert kinds(none(*parameters)) == []


def test_the_line_that_cut_the_path() -> None:
    cut = Cut("argmax", at(15), "quantizer", ("b.weight",))
    found = only(none(*lost("b.weight"), seen=[cut]))
    assert (found.sites[0].role, found.sites[0].site, found.module) == ("cut", at(15), "quantizer")
    assert "an index or a count has no gradient" in found.title
    # A detach in a model that no optimizer trains is intended.
    alone = lost("b.weight", trained=None, root="other")
    assert kinds(none(*alone, seen=[dataclasses.replace(cut, op="detach")])) == []
    assert kinds(none(*alone, seen=[cut])) == ["none-grad"]


def test_a_loss_of_the_result_of_a_straight_through_step() -> None:
    """The line of the loss is the cause, and the step comes before other lines that cut the same path."""
    cuts = [Cut("detach", at(n), "quantizer", ("b.weight",)) for n in (14, 15)]
    found = only(none(*lost("b.weight"), seen=[*cuts, StraightThroughLoss(at(30), at(15), 0)]))
    assert roles(found)[:2] == [("loss", 30), ("cut", 15)] and "straight-through" in found.title
    other = only(none(*lost("b.weight"), seen=[*cuts, StraightThroughLoss(at(30), at(16), 0)]))
    assert roles(other)[0] == ("cut", 14)


def test_the_line_that_turned_reentrant_checkpoints_on() -> None:
    cut = Cut("checkpoint", at(16), None, ("b.weight",), enabled=at(7))
    assert roles(only(none(*lost("b.weight"), seen=[cut])))[:2] == [("enabled", 7), ("cut", 16)]
    same = dataclasses.replace(cut, enabled=at(16))
    assert roles(only(none(*lost("b.weight"), seen=[same])))[0] == ("cut", 16)


def test_a_reentrant_checkpoint_without_an_input_that_requires_a_gradient() -> None:
    cut = Cut("checkpoint", at(16), None, ("b.weight",))
    found = only(none(*lost("b.weight"), seen=[cut]))
    assert "use_reentrant=False" in found.advice
    assert found.severity == "warning"
    assert only(traced(NO_GRAPH, parameters=lost("b.weight"), seen=[cut])).severity == "error"
    assert kinds(traced(NO_GRAPH, seen=[cut])) == []


def test_a_reentrant_checkpoint_that_loses_them_late() -> None:
    """A nested backward call reaches the parameters inside the checkpoint."""

    def steps(since: int) -> list[BackwardCall]:
        found = []
        for step in range(16):
            found.append(dataclasses.replace(STEP, index=2 * step, step=step))
            if step < since:
                inner = call(run("MmBackward0", 1, op="mm"), leaf("b.weight"), index=2 * step + 1, step=step)
                found.append(dataclasses.replace(inner, inside=2 * step))
        return found

    parameters = reached("a.weight", "b.weight")
    cut = Cut("checkpoint", at(16), None, ("b.weight",), step=8)
    found = only(traced(*steps(8), parameters=parameters, seen=[cut]))
    assert (found.kind, found.parameters, found.step, roles(found)[0]) == ("none-grad", ("b.weight",), 8, ("cut", 16))
    assert kinds(traced(*steps(15), parameters=parameters, seen=[cut])) == []
    early = dataclasses.replace(cut, step=0)
    assert kinds(traced(*steps(8), parameters=parameters, seen=[early])) == []


def test_gradient_mode_that_was_off_for_a_part() -> None:
    found = only(none(*lost("b.weight", calls=0, quiet_calls=4, turned_off=at(17))))
    assert (found.sites[0].role, found.sites[0].site) == ("cut", at(17))


def test_a_projection_inside_a_part_without_gradient_mode() -> None:
    """Attention reads the parameters of its output projection, and does not call it."""
    inside = lost("b.weight", calls=0, quiet_calls=4, turned_off=at(17)) + lost("b.out.weight", calls=0)[-1:]
    found = only(none(*inside))
    assert found.parameters == ("b.weight", "b.out.weight") and roles(found)[0] == ("cut", 17)
    other = lost("b.weight", calls=0, quiet_calls=4, turned_off=at(17)) + lost("c.weight", calls=0)[-1:]
    assert sorted(kinds(none(*other))) == ["none-grad", "none-grad"]


def test_experts_that_the_data_chooses_are_information() -> None:
    experts = [parameter(f"experts.{i}.weight", calls=i + 1) for i in range(2)]
    found = only(none(*experts, *lost("experts.2.weight", calls=0)))
    assert found.severity == "info"


def test_an_uncalled_module_has_the_line_that_would_call_it() -> None:
    found = only(none(*lost("b.weight", calls=0, used=at(18), defined=at(4))))
    assert roles(found) == [("cut", 18), ("defined", 4)]


def test_a_collective_that_the_code_calls_where_an_output_was_lost() -> None:
    gather = Cut("all_gather", at(30), None, (), 0)
    parameters = [*lost("text.weight", calls=4), *reached("image.weight")]
    found = only(traced(STEP, parameters=parameters, seen=(gather,)))
    assert roles(found)[0] == ("cut", 30) and found.confidence == "likely" and "all_gather gives" in found.title
    assert not kinds(traced(STEP, parameters=reached("image.weight"), seen=(gather,)))


def test_a_run_that_failed_early_has_not_reached_everything() -> None:
    failed = call(run("SumBackward0", 1), leaf("a.weight"), index=9, raised=raised("no", 0))
    assert kinds(none(*lost("b.weight"), calls=[failed])) == ["backward-error"]
    steps = [dataclasses.replace(STEP, index=i, step=i) for i in range(3)]
    assert kinds(none(*lost("b.weight"), calls=[*steps, failed])) == ["backward-error", "none-grad"]


def test_a_loss_without_a_graph() -> None:
    found = only(traced(NO_GRAPH))
    assert (found.kind, found.severity, found.confidence) == ("none-grad", "error", "certain")
    cut = only(traced(NO_GRAPH, seen=[Cut("item", at(15), "head", ("b.weight",))]))
    assert (cut.confidence, cut.sites[0].site, cut.parameters) == ("likely", at(15), ("b.weight",))
    assert kinds(traced(NO_GRAPH, seen=[OFF])) == ["grad-mode-disabled"]


def test_a_loss_of_which_everything_is_frozen() -> None:
    seen = FrozenLoss(("net.a", "net.b"), 20, at(7), at(90), at(12), before=True)
    found = only(traced(NO_GRAPH, seen=[seen]))
    assert (found.kind, found.severity, found.confidence, found.step) == ("none-grad", "error", "certain", 20)
    assert roles(found) == [("cut", 7), ("cut", 12), ("failed", 90)]
    assert "requires_grad is off for net.a, net.b, which learned before" in found.title
    inferred = only(traced(NO_GRAPH, seen=[dataclasses.replace(seen, observed=False, candidates=(at(7), at(8)))]))
    assert inferred.confidence == "likely" and len(inferred.evidence["candidates"]) == 2


def test_a_loss_that_has_no_graph_any_more() -> None:
    """The cause is a new cut: an older cut did not stop the calls before."""
    failed = dataclasses.replace(NO_GRAPH, index=1, step=7)
    cuts = [Cut("item", at(15), "head", ("b.weight",), 1, 0), Cut("detach", at(16), "head", ("b.weight",), 1, 7)]
    found = only(traced(STEP, failed, seen=cuts))
    assert roles(found) == [("cut", 16), ("failed", 90)]
    found = only(traced(STEP, failed, seen=cuts[:1]))
    assert roles(found) == [("failed", 90)]
    assert "1 backward calls before it had one" in found.title


def test_a_penalty_on_a_gradient_without_a_graph() -> None:
    grad = dataclasses.replace(STEP, kind="autograd.grad", site=at(14))
    found = only(traced(grad, dataclasses.replace(NO_GRAPH, index=1)))
    assert roles(found) == [("cut", 14), ("failed", 90)]
    assert "create_graph=True" in found.advice


def test_a_gradient_of_what_was_not_used() -> None:
    unused = "The differentiated Tensor at index 0 appears to not have been used in the graph."
    found = only(traced(call(raised=raised(unused, None))))
    assert (found.kind, "allow_unused=True" in found.advice) == ("none-grad", True)


def test_a_stopped_parameter_has_its_step_and_line() -> None:
    parameters = reached("side.weight", "main.weight")
    seen = StoppedLearning(("side.weight",), 100, "cut", None, at(90))
    early, late = (Cut("item", at(n), "", ("side.weight",), step=step) for n, step in ((11, 0), (12, 104)))
    found = only(traced(STEP, parameters=parameters, seen=(seen, early, late)))
    assert (found.kind, found.step, found.confidence) == ("none-grad", 100, "likely")
    assert roles(found) == [("cut", 12), ("failed", 90)]
    assert "learned until step 99" in found.title
    # A branch that a loss leaves out from some step on is a choice.
    assert not kinds(traced(STEP, parameters=parameters, seen=(seen, early)))


def test_a_cached_output_of_a_module_that_is_no_longer_called() -> None:
    parameters = reached("side.weight", "main.weight")
    seen = StoppedLearning(("side.weight",), 100, "uncalled", None, at(90))
    cut = Cut("detach", at(11), "", ("side.weight",), step=0, arrived=120)
    found = only(traced(STEP, parameters=parameters, seen=(seen, cut)))
    assert roles(found) == [("cut", 11), ("failed", 90)] and "in place of a new result" in found.title
    # Used while the module was called, or not at all: that it was left out is a choice.
    for arrived in (99, None):
        assert not kinds(traced(STEP, parameters=parameters, seen=(seen, dataclasses.replace(cut, arrived=arrived))))


@pytest.mark.parametrize(("reason", "says"), [("frozen", "not on again"), ("quiet", "gradient mode off")])
def test_why_it_stopped(reason: str, says: str) -> None:
    seen = StoppedLearning(("side.weight",), 40, reason, at(7), at(90))
    found = only(traced(STEP, parameters=reached("side.weight"), seen=(seen,)))
    assert (found.severity, found.sites[0].site) == ("warning", at(7)) and says in found.title
