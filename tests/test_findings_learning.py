"""What does not learn, and gradients that fade or blow up, on records written by hand."""

from __future__ import annotations

import dataclasses

import pytest
from handmade import at, bad_root, call, kinds, leaf, looked, only, parameter, raised, roles, run, traced

from backprobe.records import (
    ACCUMULATE_SEQ,
    BackwardCall,
    Cut,
    NoGradient,
    OptimizerSeen,
    RankSeen,
    RankWait,
    StoppedLearning,
    Stray,
)
from backprobe.traced import Trace

STEP = call(run("SumBackward0", 1, op="sum"), leaf("a.weight"))


def reached(*names: str, **more) -> list:
    return [parameter(name, **more) for name in names]


def lost(*names: str, **more) -> list:
    return [parameter(name, **({"reached": 0, "alive": False} | more)) for name in names]


def flat(name: str = "ReluBackward0", **more) -> BackwardCall:
    """A node at line 11 turns the gradient of ``a.weight`` into zero."""
    return call(
        run("SumBackward0", 1, op="sum", line=12),
        run(name, 2, op="relu", line=11, module="act", gave=(0.0,)),
        leaf("a.weight", came=0.0),
        **more,
    )


def deep(norms: list[float], names: list[str] | None = None, **more) -> BackwardCall:
    """Layers one below the other, the last first; `norms` are those of the gradients at their outputs."""
    runs = []
    for i, norm in enumerate(norms):
        name = names[i] if names is not None else f"layers.{len(norms) - 1 - i}.weight"
        below, below_norm = (2 * i + 2, norms[i + 1]) if i + 1 < len(norms) else (None, None)
        runs.append(
            run(
                "AddmmBackward0",
                2 * i + 1,
                below,
                op="linear",
                line=20,
                module=name.rpartition(".")[0],
                came=(norm,),
                gave=(1.0, below_norm),
            )
        )
        runs.append(leaf(name))
    return call(*runs, **more)


def stack(count: int, factor: float) -> tuple[BackwardCall, list]:
    seen = deep([factor**i for i in range(count)])
    return seen, [parameter(f"layers.{i}.weight") for i in range(count)]


def grown(count: int, factor: float, *others: BackwardCall, **more) -> Trace:
    seen, parameters = stack(count, factor)
    return traced(dataclasses.replace(seen, **more), *others, parameters=parameters)


NO_GRAPH = call(raised=raised("element 0 of tensors does not require grad and does not have a grad_fn", None))
DEAD = [parameter("a.weight", alive=False)]
STRAY = Stray(("w",), "block", "layers", "a list", at(5), False)
OPTIMIZER = OptimizerSeen("SGD", at(6), 4, 0)
NONLEAF = NoGradient("nonleaf", at(21), None, "", "x", 3, at(20))
OFF = NoGradient("grad-mode", at(3), at(90), "", "")

#: Kind -> a run that shows it; the sites of the finding.
FIRES = {
    "zero-grad": (traced(flat(), parameters=DEAD), [("cut", 11), ("failed", 90)]),
    "none-grad": (
        traced(STEP, parameters=[*reached("a.weight"), *lost("b.weight", defined=at(4))]),
        [("defined", 4)],
    ),
    "unregistered-parameter": (traced(STEP, seen=[STRAY]), [("cut", 5)]),
    "parameter-not-in-optimizer": (
        traced(
            STEP,
            parameters=reached("a.weight", trained=False, replaced=True, defined=at(7)),
            seen=[dataclasses.replace(OPTIMIZER, orphans=2)],
        ),
        [("optimizer", 6), ("replaced", 7)],
    ),
    "vanishing-gradient": (grown(8, 0.1), [("cause", 20), ("failed", 90)]),
    "exploding-gradient": (grown(8, 10.0), [("cause", 20), ("failed", 90)]),
    "update-too-large": (
        looked({"update_ratio|a.weight": [0.3] * 8}, traced(STEP, seen=[OPTIMIZER], ask="levels")),
        [("optimizer", 6)],
    ),
    "divergence-ahead": (
        looked({"attention_logit|a": [2.0] * 8 + [45.0, 60.0, 80.0]}, traced(STEP, seen=[OPTIMIZER], ask="levels")),
        [("optimizer", 6)],
    ),
    "grad-mode-disabled": (traced(NO_GRAPH, seen=[OFF]), [("cut", 3), ("failed", 90)]),
    "nonleaf-grad": (traced(STEP, seen=[NONLEAF]), [("cut", 20), ("cut", 21)]),
}


@pytest.mark.parametrize("kind", FIRES)
def test_one_run_one_finding(kind: str) -> None:
    trace, sites = FIRES[kind]
    assert kinds(trace) == [kind]
    assert roles(only(trace)) == sites
    assert only(trace).advice


BAD = call(run("SumBackward0", 1, op="sum", line=12), leaf("a.weight"), index=1, roots=bad_root())
STUCK = [RankSeen(0, 1, (RankWait("barrier", at(60), 50.0, 4.0, "raised"),))]


def test_sizes_of_gradients_say_nothing_where_they_are_spoiled() -> None:
    for calls, parameters in (((flat(),), DEAD), (stack(8, 0.1)[:1], stack(8, 0.1)[1])):
        assert kinds(traced(*calls, BAD, parameters=parameters)) == ["nonfinite-forward"]
        assert kinds(traced(*calls, parameters=parameters, seen=STUCK)) == ["rank-desync"]
        # An error that tells nothing of the gradients does not silence them.
        (first, second) = kinds(traced(*calls, parameters=parameters, seen=[OFF]))
        assert first == "grad-mode-disabled"
        assert second in ("zero-grad", "vanishing-gradient")


# Zeros


@pytest.mark.parametrize(
    "parameters",
    [
        reached("a.weight"),
        reached("a.weight", alive=False, requires_grad=False),
        lost("a.weight", trained=False),
        [parameter("a.weight", alive=False, shape=(0, 4))],
    ],
    ids=["alive", "frozen", "not reached", "empty"],
)
def test_zeros_are_no_finding_where_the_parameter_is(parameters: list) -> None:
    assert kinds(traced(flat(), parameters=parameters)) == []


def test_a_step_function_is_named_as_one() -> None:
    found = only(traced(flat("RoundBackward0"), parameters=DEAD))
    assert found.evidence["always_flat"]
    assert "straight-through" in found.advice


def test_a_weight_of_zero_counts_after_three_steps() -> None:
    """As in a low-rank adapter: B is zero, so A gets nothing until B has been trained."""

    def adapter(index: int) -> BackwardCall:
        return call(
            run("SumBackward0", 1, op="sum", line=13),
            run("MulBackward0", 2, 3, op="mul", line=12, gave=(0.0, 1.0)),
            leaf("A", came=0.0),
            leaf("B"),
            index=index,
        )

    parameters = [parameter("A", alive=False), parameter("B")]
    assert kinds(traced(*map(adapter, range(2)), parameters=parameters)) == []
    found = only(traced(*map(adapter, range(3)), parameters=parameters))
    assert (found.kind, found.parameters, found.sites[0].site) == ("zero-grad", ("A",), at(12))


def test_what_starves_a_layer_explains_its_weight_too() -> None:
    seen = call(
        run("SumBackward0", 1, op="sum", line=14),
        run("AddmmBackward0", 2, 3, op="linear", line=13, gave=(1.0, 0.0)),
        run("ReluBackward0", 4, op="relu", line=12, gave=(0.0,)),
        leaf("second.weight", came=0.0),
        leaf("first.weight", came=0.0),
    )
    parameters = [parameter("first.weight", alive=False), parameter("second.weight", alive=False)]
    found = only(traced(*(dataclasses.replace(seen, index=i, step=i) for i in range(3)), parameters=parameters))
    assert (found.sites[0].site, found.parameters) == (at(12), ("first.weight", "second.weight"))


# None


def none(*parameters, seen=(), calls=(STEP,)) -> Trace:
    return traced(*calls, parameters=[*reached("a.weight"), *parameters], seen=seen)


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
    # A detach in a model that nobody trains is meant.
    alone = lost("b.weight", trained=None, root="other")
    assert kinds(none(*alone, seen=[dataclasses.replace(cut, op="detach")])) == []
    assert kinds(none(*alone, seen=[cut])) == ["none-grad"]


def test_a_reentrant_checkpoint_without_an_input_that_requires_a_gradient() -> None:
    cut = Cut("checkpoint", at(16), None, ("b.weight",))
    found = only(none(*lost("b.weight"), seen=[cut]))
    assert "use_reentrant=False" in found.advice
    assert found.severity == "warning"
    assert only(traced(NO_GRAPH, parameters=lost("b.weight"), seen=[cut])).severity == "error"
    assert kinds(traced(NO_GRAPH, seen=[cut])) == []


def test_a_reentrant_checkpoint_that_loses_them_late() -> None:
    """What is inside is reached by a call of its own in the backward."""

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


def test_experts_that_the_data_chooses_are_information() -> None:
    experts = [parameter(f"experts.{i}.weight", calls=i + 1) for i in range(2)]
    found = only(none(*experts, *lost("experts.2.weight", calls=0)))
    assert found.severity == "info"


def test_what_was_not_called_is_told_where_it_would_be() -> None:
    found = only(none(*lost("b.weight", calls=0, used=at(18), defined=at(4))))
    assert roles(found) == [("cut", 18), ("defined", 4)]


def test_a_loss_that_has_no_graph_any_more() -> None:
    """What cut it is new: an older cut did not stop the calls before."""
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


def test_a_loss_without_a_graph() -> None:
    found = only(traced(NO_GRAPH))
    assert (found.kind, found.severity, found.confidence) == ("none-grad", "error", "certain")
    cut = only(traced(NO_GRAPH, seen=[Cut("item", at(15), "head", ("b.weight",))]))
    assert (cut.confidence, cut.sites[0].site, cut.parameters) == ("likely", at(15), ("b.weight",))
    assert kinds(traced(NO_GRAPH, seen=[OFF])) == ["grad-mode-disabled"]


def test_a_run_that_failed_early_has_not_reached_everything() -> None:
    failed = call(run("SumBackward0", 1), leaf("a.weight"), index=9, raised=raised("no", 0))
    assert kinds(none(*lost("b.weight"), calls=[failed])) == ["backward-error"]
    steps = [dataclasses.replace(STEP, index=i, step=i) for i in range(3)]
    assert kinds(none(*lost("b.weight"), calls=[*steps, failed])) == ["backward-error", "none-grad"]


# Trends


def test_a_trend_needs_layers_and_size() -> None:
    assert kinds(grown(4, 0.01)) == []  # few layers
    assert kinds(grown(8, 0.5)) == []  # a factor of 128 in all
    assert kinds(grown(8, 1.0)) == []
    some = deep([1.0, 1e-4, 1e-1, 1e-5, 1e-2, 1e-6, 1e-3, 1e-7])
    assert kinds(traced(some, parameters=stack(8, 1.0)[1])) == []  # up and down
    vectors = [dataclasses.replace(p, shape=(4,)) for p in stack(8, 0.1)[1]]
    assert kinds(traced(stack(8, 0.1)[0], parameters=vectors)) == []


def test_a_trend_is_what_the_first_calls_agree_on() -> None:
    calm = deep([1.0] * 8, index=1)
    assert kinds(grown(8, 0.1, calm)) == []
    again = [dataclasses.replace(stack(8, 0.1)[0], index=i, step=i) for i in range(1, 4)]
    assert kinds(grown(8, 0.1, *again)) == ["vanishing-gradient"]
    assert kinds(grown(8, 0.1, *again[:2], calm)) == ["vanishing-gradient"]  # nobody looks at the fourth
    assert kinds(grown(8, 0.1, inside=3)) == []


def test_steps_of_time_forget() -> None:
    names = ["cell.weight"] * 12
    over = deep([0.1**i for i in range(12)], names)
    found = only(traced(over, parameters=reached("cell.weight")))
    assert (found.kind, found.severity, found.parameters) == ("vanishing-gradient", "info", ("cell.weight",))
    some = deep([0.3**i for i in range(12)], names)
    assert kinds(traced(some, parameters=reached("cell.weight"))) == []
    assert kinds(traced(deep([3.0**i for i in range(12)], names), parameters=reached("cell.weight"))) == [
        "exploding-gradient"
    ]


def horizon(step: int, uses: int, factor: float) -> BackwardCall:
    """A simulation, from its end: at two of each five uses of the controller's weight the gradient becomes smaller."""
    norms, runs = [factor**i * (0.4 if i % 5 in (1, 3) else 1.0) for i in range(uses)], []
    for i, norm in enumerate(norms):
        below = (2 * i + 2, norms[i + 1]) if i + 1 < uses else (None, None)
        runs.append(
            run("AddmmBackward0", 2 * i + 1, below[0], op="linear", line=20, came=(norm,), gave=(1.0, below[1]))
        )
        runs.append(leaf("controller.weight", came=max(norms)))
    return call(*runs, index=step, step=step)


def test_a_horizon_that_becomes_longer() -> None:
    parameters = reached("controller.weight")
    short = [horizon(step, 10, 1.01) for step in range(20)]
    after = [horizon(20, 200, 1.08), *(horizon(step, 200, 1.01) for step in range(21, 26))]
    found = only(traced(*short, *after, parameters=parameters))
    assert (found.kind, found.step, found.parameters) == ("exploding-gradient", 20, ("controller.weight",))
    assert "fewer steps of time" in found.advice
    tame = [horizon(step, 200, 1.01) for step in range(20, 26)]
    assert kinds(traced(*short, *tame, parameters=parameters)) == []
    # As large, and not from use to use.
    large = [horizon(step, 10, 1.01) for step in range(20)]
    large[12] = call(*(leaf("controller.weight", came=1e6) if r.parameter else r for r in large[12].nodes), step=12)
    assert kinds(traced(*large, parameters=parameters)) == []


def test_the_op_that_multiplies_most_is_named() -> None:
    runs = []
    for i in range(8):
        runs += [
            run("SigmoidBackward0", 3 * i + 1, op="sigmoid", line=31, came=(0.1**i,), gave=(0.1 ** (i + 1),)),
            run(
                *("AddmmBackward0", 3 * i + 2, 3 * i + 3 if i < 7 else None),
                **{"op": "linear", "line": 30, "came": (0.1 ** (i + 1),), "gave": (1.0, 0.1 ** (i + 1))},
            ),
            leaf(f"layers.{7 - i}.weight"),
        ]
    found = only(traced(call(*runs), parameters=stack(8, 1.0)[1]))
    assert (found.node, found.sites[0].site) == ("SigmoidBackward0", at(31))
    assert found.evidence["factor_of_op"] == pytest.approx(0.1)


# Trainable things, and gradient mode


def test_how_a_stray_is_named() -> None:
    for stray, where in (
        (STRAY, "self.layers holds parameters that parameters() does not list, in a list"),
        (dataclasses.replace(STRAY, attribute="", how="made in the forward"), "a module made in the forward"),
        (dataclasses.replace(STRAY, attribute="", how="elsewhere"), "a module called here"),
        (dataclasses.replace(STRAY, optimized=True), "no optimizer trains them"),
    ):
        assert where in only(traced(STEP, seen=[stray])).title


def test_parameters_that_no_optimizer_holds() -> None:
    new = reached("b.weight", trained=False, added=True)
    assert "became part of the model" in only(traced(STEP, parameters=new, seen=[OPTIMIZER])).title
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
    assert kinds(traced(STEP, parameters=parameters[:1], seen=[hollow])) == []  # nobody misses what it would hold


def test_a_tensor_of_inference_mode() -> None:
    found = only(traced(STEP, seen=[dataclasses.replace(OFF, kind="inference")]))
    assert (found.kind, found.confidence) == ("grad-mode-disabled", "likely")
    assert "clone() the tensor" in found.advice


def biased(index: int, ran: bool = True) -> BackwardCall:
    """A bias whose gradient sums to zero: the loss does not depend on it, as a critic's on its last one."""
    bias = run("AccumulateGrad", parameter="bias", seq=ACCUMULATE_SEQ, came=(0.0,), ran=ran)
    return call(
        run("SubBackward0", 1, op="sub", line=13),
        run("AddmmBackward0", 2, None, 3, op="linear", line=12, gave=(0.0 if ran else None, None, 1.0)),
        bias,
        leaf("weight"),
        index=index,
        kind="Tensor.backward" if ran else "autograd.grad",
    )


def test_a_bias_that_the_loss_does_not_depend_on_is_no_finding() -> None:
    parameters = [parameter("bias", alive=False), parameter("weight")]
    assert kinds(traced(*map(biased, range(4)), parameters=parameters)) == []


def test_what_a_gradient_was_not_asked_for_is_no_zero() -> None:
    """A penalty's ``autograd.grad`` passes the critic's parameters by."""
    parameters = [parameter("bias", alive=False), parameter("weight")]
    calls = [biased(0, ran=False), biased(1), biased(2, ran=False), biased(3)]
    assert kinds(traced(*calls, parameters=parameters)) == []


# What learned, and stopped


def test_what_stopped_is_told_with_step_and_line() -> None:
    parameters = reached("side.weight", "main.weight")
    seen = StoppedLearning(("side.weight",), 100, "cut", None, at(90))
    early, late = (Cut("item", at(n), "", ("side.weight",), step=step) for n, step in ((11, 0), (12, 104)))
    found = only(traced(STEP, parameters=parameters, seen=(seen, early, late)))
    assert (found.kind, found.step, found.confidence) == ("none-grad", 100, "likely")
    assert roles(found) == [("cut", 12), ("failed", 90)]
    assert "learned until step 99" in found.title
    # A branch that a loss leaves out from some step on is a choice.
    assert not kinds(traced(STEP, parameters=parameters, seen=(seen, early)))


def test_what_was_kept_is_used_on_where_nobody_calls_the_module_any_more() -> None:
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


def test_a_collective_that_the_code_calls_where_an_output_was_lost() -> None:
    gather = Cut("all_gather", at(30), None, (), 0)
    parameters = [*lost("text.weight", calls=4), *reached("image.weight")]
    found = only(traced(STEP, parameters=parameters, seen=(gather,)))
    assert roles(found)[0] == ("cut", 30) and found.confidence == "likely" and "all_gather gives" in found.title
    assert not kinds(traced(STEP, parameters=reached("image.weight"), seen=(gather,)))


# What no optimizer uses


@pytest.mark.parametrize(("reason", "word"), [("replaced", "another model"), ("removed", "do not learn")])
def test_what_is_trained_no_more_from_a_step_on(reason: str, word: str) -> None:
    """A copy of the model is reached instead, or tensors that are no parameters."""
    seen = StoppedLearning(("copy.weight",), 40, reason, at(6), at(90))
    found = only(traced(STEP, parameters=reached("weight"), seen=(seen,)))
    assert (found.kind, found.step, found.parameters) == ("parameter-not-in-optimizer", 40, ("copy.weight",))
    assert roles(found) == [("optimizer", 6), ("failed", 90)] and word in found.title


def test_what_was_thawed_after_the_optimizer_was_made() -> None:
    parameters = [parameter("body.weight", trained=False, thawed=at(20)), parameter("head.weight")]
    found = only(traced(STEP, parameters=parameters, seen=(OPTIMIZER,)))
    assert (found.kind, found.parameters) == ("parameter-not-in-optimizer", ("body.weight",))
    assert roles(found) == [("optimizer", 6), ("thawed", 20)]


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


# One operation that makes a gradient explode, and what dies late


def spiked(factor: float) -> BackwardCall:
    return call(
        run("AddBackward0", 1, 3, 4, op="add", line=12),
        run("DivBackward0", 2, op="div", line=11, module="unit", gave=(factor,)),
        leaf("table.weight", came=factor),
        leaf("proj.weight"),
        leaf("proj.bias"),
    )


def test_one_operation_that_makes_a_gradient_explode() -> None:
    parameters = reached("table.weight", "proj.weight", "proj.bias")
    found = only(traced(spiked(1e12), parameters=parameters))
    assert (found.kind, found.module, found.parameters) == ("exploding-gradient", "unit", ("table.weight",))
    assert roles(found)[0] == ("cause", 11)
    assert not kinds(traced(spiked(1e4), parameters=parameters))


def steady(step: int, factor: float) -> BackwardCall:
    """All of one path, so that no other parameter tells what is usual."""
    return call(
        run("AddBackward0", 1, op="add", line=12),
        run("DivBackward0", 2, op="div", line=11, module="unit", gave=(factor,)),
        leaf("table.weight", came=factor),
        index=step,
        step=step,
    )


def test_a_gradient_that_explodes_and_stays_so() -> None:
    """What is usual was before, also where most calls are unlike that."""
    parameters = reached("table.weight")
    calls = [steady(step, 3.0 if step < 8 else 1e9) for step in range(40)]
    found = only(traced(*calls, parameters=parameters))
    assert (found.kind, found.step, roles(found)[0]) == ("exploding-gradient", 8, ("cause", 11))
    assert not kinds(traced(*(steady(step, 1e9) for step in range(40)), parameters=parameters))


def dying(step: int, norm: float) -> BackwardCall:
    return call(
        run("AddBackward0", 1, 3, op="add", line=12),
        run("ReluBackward0", 2, op="relu", line=11, module="act", gave=(norm,)),
        leaf("a.weight", came=norm),
        leaf("skip.weight"),
        index=step,
        step=step,
    )


def test_what_dies_late() -> None:
    parameters = reached("a.weight", "skip.weight")
    calls = [dying(step, 1.0 if step < 8 else 0.0) for step in range(16)]
    found = only(traced(*calls, parameters=parameters))
    assert (found.kind, found.confidence, found.parameters) == ("zero-grad", "likely", ("a.weight",))
    assert roles(found)[0] == ("cut", 11)
    # Once in a while is no death.
    assert not kinds(traced(*calls, dying(16, 1.0), parameters=parameters))


def test_everything_died_while_the_loss_is_not_zero() -> None:
    """In nearly all steps at the end; a loss of zero is one that is met."""
    learned = [parameter("a.weight")]
    steps = [flat(index=i) if i > 8 and i % 8 else dataclasses.replace(STEP, index=i, step=i) for i in range(32)]
    found = only(traced(*steps, parameters=learned))
    assert (found.kind, found.sites[0].site, found.confidence) == ("zero-grad", at(11), "likely")
    met = [dataclasses.replace(c, roots=(dataclasses.replace(c.roots[0], value=0.0),)) for c in steps]
    assert kinds(traced(*met, parameters=learned)) == []
    half = [flat(index=i) if i % 2 else dataclasses.replace(STEP, index=i, step=i) for i in range(32)]
    assert kinds(traced(*half, parameters=learned)) == []
    # More than half at the end, and none at the start.
    often = [flat(index=i) if i > 19 and i % 3 else dataclasses.replace(STEP, index=i, step=i) for i in range(32)]
    assert kinds(traced(*often, parameters=learned)) == ["zero-grad"]
    assert kinds(traced(flat(), *often[1:], parameters=learned)) == []


def emptied(step: int, name: str, norm: float, loss: float) -> BackwardCall:
    made = call(
        run(name, 1, op=name.removesuffix("Backward0").lower(), line=11, gave=(norm,)),
        leaf("a.weight", came=norm),
        index=step,
        step=step,
    )
    return dataclasses.replace(made, roots=(dataclasses.replace(made.roots[0], value=loss),))


def test_nothing_is_left_in_the_loss() -> None:
    """A loss of zero from a step on: by a factor or a mask of zeros, and not since it is met."""

    def seen(name: str, zeros: list[bool], loss: float = 0.0) -> list:
        calls = [emptied(i, name, 0.0 if z else 1.0, loss if z else 0.5) for i, z in enumerate(zeros)]
        return traced(*calls, parameters=reached("a.weight")).findings

    late = [False] * 9 + [True] * 15
    (found,) = seen("MulBackward0", late)
    assert (found.kind, found.step, found.sites[0].site, found.confidence) == ("zero-grad", 9, at(11), "likely")
    assert "leaves out everything" in found.title
    assert [f.kind for f in seen("WhereBackward0", late)] == ["zero-grad"]
    assert seen("ReluBackward0", late) == []  # a margin that is kept
    assert seen("MulBackward0", [False] * 15 + [True] * 9) == []  # for a while
    assert seen("MulBackward0", [*late, False]) == []
    assert seen("MulBackward0", [True, *late]) == []  # as at the start


def test_gradients_that_a_dtype_does_not_hold() -> None:
    calls = [emptied(i, "ToCopyBackward0", 1.0 if i < 9 else 0.0, 0.5) for i in range(24)]
    (found,) = traced(*calls, parameters=reached("a.weight")).findings
    assert (found.kind, found.sites[0].site) == ("zero-grad", at(11))
    assert "too small for the dtype" in found.title and "GradScaler" in found.advice


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


# Levels


def of(quantity: str, values: list[float], **more: list[float]) -> list[str]:
    return kinds(looked({f"{quantity}|a.weight": values, **more}, traced(STEP, seen=[OPTIMIZER], ask="levels")))


def test_an_alarm_says_where_since_when_and_by_how_much() -> None:
    curves = {
        "update_ratio|a.weight": [0.01] * 4 + [0.2] * 8,
        "update_ratio|b.weight": [0.01] * 5 + [0.9] * 7,
    }
    found = only(looked(curves, traced(STEP, seen=[OPTIMIZER], ask="levels")))
    assert (found.kind, found.parameters, found.module, found.step) == ("update-too-large", ("a.weight",), "a", 40)
    assert (found.evidence["since"], found.evidence["noticed"]) == (40, 80)
    assert found.title == "updates of a.weight are 20% of it in step 80, and more than 10% since step 40"


@pytest.mark.parametrize(
    ("quantity", "values"),
    [
        ("update_ratio", [0.3] + [0.01] * 10),  # the first step
        ("update_ratio", [0.01, 0.3, 0.3, 0.3, 0.3, 0.01] * 3),  # never five in a row
        ("attention_logit", [50.0] * 12),  # as it was from the start
        ("attention_logit", [2.0] * 8 + [30.0] * 4),  # grows, and is not large
        ("attention_logit", [2.0] * 8 + [80.0, 80.0, 2.0, 80.0]),
        ("activation_rms", [1.0] * 8 + [9.0] * 4),
        ("weight_rms", [0.01] * 8 + [0.2] * 4),
        ("headroom", [101.0] * 12),
        ("adam_ratio", [30.0] * 12),  # one parameter alone
    ],
)
def test_levels_that_are_no_alarm(quantity: str, values: list[float]) -> None:
    assert of(quantity, values) == []


@pytest.mark.parametrize(
    ("quantity", "values"),
    [
        ("activation_rms", [1.0] * 8 + [40.0] * 3),
        ("weight_rms", [0.1] * 8 + [0.7] * 3),
        ("headroom", [1e4] * 4 + [90.0, 80.0, 60.0]),
    ],
)
def test_levels_that_are_one(quantity: str, values: list[float]) -> None:
    assert of(quantity, values) == ["divergence-ahead"]


def test_gradients_that_are_far_beyond_their_second_moment() -> None:
    curve = [1.0] * 6 + [4.0] * 2
    assert of("adam_ratio", curve, **{"adam_ratio|b.weight": curve}) == ["divergence-ahead"]
    assert of("adam_ratio", curve, **{"adam_ratio|b.weight": [1.0] * 8}) == []
    assert of("adam_ratio", curve[:-1], **{"adam_ratio|b.weight": curve[:-1]}) == []
