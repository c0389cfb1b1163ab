"""Tensors that no optimizer trains: parameters that none holds, and tensors that are not parameters of the model."""

from __future__ import annotations

import dataclasses

import pytest
from handmade import at, call, kinds, leaf, only, parameter, roles, run, traced
from learning import OPTIMIZER, STEP, reached, sites_of_only

from backprobe.records import StoppedLearning, Stray

STRAY = Stray(("w",), "block", "layers", "a list", at(5), False)

#: Kind -> a run that shows it; the sites of the finding.
FIRES = {
    "unregistered-parameter": (traced(STEP, seen=[STRAY]), [("cut", 5)]),
    "parameter-not-in-optimizer": (
        traced(
            STEP,
            parameters=reached("a.weight", trained=False, replaced=True, defined=at(7)),
            seen=[dataclasses.replace(OPTIMIZER, orphans=2)],
        ),
        [("optimizer", 6), ("replaced", 7)],
    ),
}


@pytest.mark.parametrize("kind", FIRES)
def test_one_run_one_finding(kind: str) -> None:
    trace, sites = FIRES[kind]
    assert sites_of_only(kind, trace) == sites


def test_how_an_unregistered_parameter_is_named() -> None:
    for stray, where in (
        (STRAY, "self.layers holds parameters that parameters() does not list, in a list"),
        (dataclasses.replace(STRAY, attribute="", how="made in the forward"), "a module made in the forward"),
        (dataclasses.replace(STRAY, attribute="", how="elsewhere"), "a module called here"),
        (dataclasses.replace(STRAY, optimized=True), "no optimizer trains them"),
    ):
        assert where in only(traced(STEP, seen=[stray])).title


def test_parameters_that_no_optimizer_holds() -> None:
    new = reached("b.weight", trained=False, added=True)
    assert "was added to the model" in only(traced(STEP, parameters=new, seen=[OPTIMIZER])).title
    assert kinds(traced(STEP, parameters=new)) == []  # no optimizer was seen
    left_out = reached("b.weight", trained=False)
    rest = reached("a.weight", "a.bias")
    assert kinds(traced(STEP, parameters=[*rest, *left_out], seen=[OPTIMIZER])) == []  # one group: a choice
    groups = dataclasses.replace(OPTIMIZER, groups=2)
    found = only(traced(STEP, parameters=[*rest, *left_out], seen=[groups]))
    assert (found.severity, found.confidence, found.parameters) == ("info", "possible", ("b.weight",))
    assert (
        kinds(traced(STEP, parameters=[*rest[:1], *reached("b.weight", "b.bias", trained=False)], seen=[groups])) == []
    )


def test_a_group_that_got_no_parameters() -> None:
    parameters = [*reached("head.weight"), *reached("body.weight", "body.bias", trained=False)]
    hollow = dataclasses.replace(OPTIMIZER, groups=2, empty=1)
    found = only(traced(STEP, parameters=parameters, seen=[hollow]))
    assert (found.kind, found.severity, found.confidence) == ("parameter-not-in-optimizer", "warning", "likely")
    assert found.parameters == ("body.weight", "body.bias") and "1 of the 2 groups of SGD holds no" in found.title
    assert (
        kinds(traced(STEP, parameters=parameters[:1], seen=[hollow])) == []
    )  # no parameter is missing from an optimizer


def test_a_last_part_that_the_optimizer_was_not_given() -> None:
    nodes = (
        run("MmBackward0", 1, 2, op="mm", line=12),
        leaf("metric.W"),
        run("AddmmBackward0", 3, 4, op="linear", line=11),
        leaf("body.bias"),
        leaf("body.weight"),
    )
    held = reached("body.weight", "body.bias")
    (found,) = traced(
        call(*nodes), parameters=[*held, parameter("metric.W", trained=False)], seen=(OPTIMIZER,)
    ).findings
    assert (found.kind, found.parameters) == ("parameter-not-in-optimizer", ("metric.W",))
    # At the beginning of a model, or where most of it is left out, it is taken for a choice.
    first = [parameter("body.weight", trained=False), *reached("body.bias", "metric.W", "other")]
    assert not kinds(traced(call(*nodes), parameters=first, seen=(OPTIMIZER,)))
    most = [parameter("metric.W"), *reached("body.weight", "body.bias", trained=False)]
    assert not kinds(traced(call(*nodes), parameters=most, seen=(OPTIMIZER,)))


def test_a_criterion_with_weights_that_the_optimizer_was_not_given() -> None:
    weights = parameter("criterion.log_vars", trained=False, root="criterion")
    trained = parameter("model.fc.weight")
    found = only(traced(STEP, parameters=[weights, trained], seen=(OPTIMIZER,)))
    assert (found.parameters, found.confidence) == (("criterion.log_vars",), "likely")
    # A model with parts inside that is left out as a whole is a choice; so is what takes part now and then.
    backbone = parameter("criterion.vgg.weight", trained=False, root="criterion")
    assert not kinds(traced(STEP, parameters=[backbone, trained], seen=(OPTIMIZER,)))
    rare = dataclasses.replace(weights, reached=1)
    assert not kinds(traced(STEP, parameters=[rare, trained], seen=(OPTIMIZER,)))


def test_an_optimizer_of_another_model() -> None:
    other = dataclasses.replace(OPTIMIZER, orphans=OPTIMIZER.tensors)
    found = only(traced(STEP, parameters=reached("module.weight", trained=False), seen=(other,)))
    assert "none of the 4 tensors" in found.title and roles(found) == [("optimizer", 6)]


def test_an_optimizer_that_was_given_one_model_twice() -> None:
    double = dataclasses.replace(OPTIMIZER, twice=4)
    parameters = [parameter("back.weight", trained=False, root="back"), parameter("there.weight", root="there")]
    found = only(traced(STEP, parameters=parameters, seen=(double,)))
    assert (found.parameters, found.confidence) == (("back.weight",), "likely") and "4 tensors twice" in found.title
    assert roles(found) == [("optimizer", 6)]
    assert not kinds(traced(STEP, parameters=parameters[1:], seen=(double,)))


def test_parameters_unfrozen_after_the_optimizer_was_created() -> None:
    parameters = [parameter("body.weight", trained=False, thawed=at(20)), parameter("head.weight")]
    found = only(traced(STEP, parameters=parameters, seen=(OPTIMIZER,)))
    assert (found.kind, found.parameters) == ("parameter-not-in-optimizer", ("body.weight",))
    assert (roles(found), found.confidence) == ([("optimizer", 6), ("thawed", 20)], "certain")
    unseen = [parameter("body.weight", trained=False, thawed_unseen=True), parameter("head.weight")]
    found = only(traced(STEP, parameters=unseen, seen=(OPTIMIZER,)))
    assert (roles(found), found.confidence) == ([("optimizer", 6)], "likely")


@pytest.mark.parametrize(("reason", "word"), [("replaced", "another model"), ("removed", "do not learn")])
def test_parameters_that_stop_being_trained_at_a_step(reason: str, word: str) -> None:
    """A copy of the model is reached instead, or tensors that are no parameters."""
    seen = StoppedLearning(("copy.weight",), 40, reason, at(6), at(90))
    found = only(traced(STEP, parameters=reached("weight"), seen=(seen,)))
    assert (found.kind, found.step, found.parameters) == ("parameter-not-in-optimizer", 40, ("copy.weight",))
    assert roles(found) == [("optimizer", 6), ("failed", 90)] and word in found.title
