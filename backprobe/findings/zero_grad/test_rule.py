"""Gradients that are zero: from the start, from a step on, and where the loss is left with nothing."""

from __future__ import annotations

import dataclasses

import pytest
from handmade import at, call, kinds, leaf, only, parameter, roles, run, traced
from learning import DEAD, STEP, flat, lost, reached, sites_of_only

from backprobe import Trace
from backprobe.records import ACCUMULATE_SEQ, BackwardCall, Facts, NodeRun, ParameterStat, ReversedStep, Site, Step
from backprobe.traces import Steps, TracedStep

#: Kind -> a run that shows it; the sites of the finding.
FIRES = {
    "zero-grad": (traced(flat(), parameters=DEAD), [("cut", 11), ("failed", 90)]),
}


@pytest.mark.parametrize("kind", FIRES)
def test_one_run_one_finding(kind: str) -> None:
    trace, sites = FIRES[kind]
    assert sites_of_only(kind, trace) == sites


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


def test_a_straight_through_step_the_wrong_way_round_is_named_first() -> None:
    seen = flat("RoundBackward0")
    rounded = next(one.site for one in seen.nodes if one.name == "RoundBackward0")
    other = ReversedStep(at(55), at(50), 0)
    found = only(traced(seen, parameters=DEAD, seen=(ReversedStep(at(44), rounded, 0), other)))
    assert [one.site for one in found.sites[:2]] == [at(44), rounded]
    assert "(the straight-through step is the wrong way round, and gives them all to " in found.title
    assert "x + (y - x).detach()" in found.advice
    elsewhere = only(traced(seen, parameters=DEAD, seen=(other,)))
    assert elsewhere.sites[0].site == rounded


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


# Samples that keep their graph

#: Lines of torch's distributions that compute a sample, and its log-probability.
RSAMPLE = (Site("/lib/torch/distributions/normal.py", 80, "rsample"),)
LOG_PROB = (Site("/lib/torch/distributions/normal.py", 95, "log_prob"),)


def scored(
    index: int = 0, sample: str = "AddBackward0", library: tuple[Site, ...] = RSAMPLE, left: float = 0.0
) -> BackwardCall:
    """A policy whose sample, drawn in line 20, is given to `log_prob` in line 21: `left` is left for the mean."""
    runs = [
        run("SubBackward0", 1, 3, op="sub", line=21, gave=(1.0, 1.0), library=LOG_PROB if library else ()),
        run("StackBackward0", 2, op="stack", line=21),
        run(sample, 3, 5, op="add", line=20, gave=(1.0, 1.0), library=library),
        run("AddmmBackward0", 4, op="linear", line=12, came=(left,), gave=(left,)),
        leaf("mean.weight", came=left),
        leaf("spread"),
    ]
    return call(*runs, index=index, step=index)


SCORED = [parameter("mean.weight", alive=False), parameter("spread")]


def test_a_sample_that_is_scored_with_its_graph() -> None:
    found = only(traced(*map(scored, range(4)), parameters=SCORED))
    assert (found.kind, found.confidence, found.parameters) == ("zero-grad", "certain", ("mean.weight",))
    assert roles(found) == [("cut", 20), ("cut", 21), ("failed", 90)]
    assert found.title == (
        "a sample of rsample() is used with its graph, so that what goes back through it and around it adds up to "
        "exactly zero: mean.weight never learn"
    )
    assert "sample.detach()" in found.advice


def test_a_sample_that_is_a_sum_of_the_script() -> None:
    found = only(traced(*(scored(i, library=()) for i in range(4)), parameters=SCORED))
    assert roles(found) == [("cut", 20), ("cut", 21), ("failed", 90)]
    assert found.title.startswith("sub subtracts what was added just before, with a graph on both sides")


def test_another_operation_before_the_difference_is_no_sample() -> None:
    found = only(traced(*(scored(i, "MulBackward0", ()) for i in range(4)), parameters=SCORED))
    assert roles(found) == [("cut", 21), ("failed", 90)]
    assert "and around it adds up to exactly zero (its result does not depend" in found.title


def test_samples_that_are_scored_from_a_step_on() -> None:
    calls = [scored(i, left=1.0 if i < 8 else 0.0) for i in range(16)]
    found = only(traced(*calls, parameters=reached("mean.weight", "spread")))
    assert (found.confidence, found.step, roles(found)[0]) == ("likely", 8, ("cut", 20))
    assert not kinds(traced(*calls, scored(16, left=1.0), parameters=reached("mean.weight", "spread")))
    # A sum of the script may become equal to what is subtracted from it, for a reason that is not known.
    by_hand = [scored(i, library=(), left=1.0 if i < 8 else 0.0) for i in range(16)]
    assert not kinds(traced(*by_hand, parameters=reached("mean.weight", "spread")))


# From a step on


def dying(step: int, norm: float) -> BackwardCall:
    return call(
        run("AddBackward0", 1, 3, op="add", line=12),
        run("ReluBackward0", 2, op="relu", line=11, module="act", gave=(norm,)),
        leaf("a.weight", came=norm),
        leaf("skip.weight"),
        index=step,
        step=step,
    )


def test_gradients_that_become_zero_late() -> None:
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


def test_few_recorded_steps_of_an_empty_loss_do_if_the_others_are_known() -> None:
    """The losses of steps that were not recorded are known: all of them have to be zero."""

    def seen(losses: list[float], recorded: tuple[int, ...] = (*range(9), 12, 17, 23)) -> list[str]:
        calls = [emptied(i, "MulBackward0", 1.0 if losses[i] else 0.0, losses[i]) for i in recorded]
        steps = [TracedStep(Step(i, 0.0, loss, ()), [c for c in calls if c.step == i]) for i, loss in enumerate(losses)]
        return kinds(Trace(Steps(steps), Facts(tuple(reached("a.weight")))))

    zero_late = [0.5] * 9 + [0.0] * 15
    assert seen(zero_late) == ["zero-grad"]
    assert seen([*zero_late[:20], 0.5, *zero_late[21:]]) == []  # one of the steps between had a loss
    assert seen(zero_late, recorded=(*range(9), 17, 23)) == []
    assert seen([0.5] * 14 + [0.0] * 10, recorded=(*range(9), 15, 17, 23)) == []  # for a while


def test_gradients_that_a_dtype_does_not_hold() -> None:
    calls = [emptied(i, "ToCopyBackward0", 1.0 if i < 9 else 0.0, 0.5) for i in range(24)]
    (found,) = traced(*calls, parameters=reached("a.weight")).findings
    assert (found.kind, found.sites[0].site) == ("zero-grad", at(11))
    assert "too small for the dtype" in found.title and "GradScaler" in found.advice


# Several of a kind, and parameters that are zero


def factors(layer: int) -> list[NodeRun]:
    """A low-rank adapter, the second to fourth node or the fifth to seventh: a product of two parameters."""
    k = 1 + 3 * layer
    product = run("MmBackward0", k + 1, k + 2, op="matmul", line=16, module=f"layers.{layer}", gave=(0.0, 0.0))
    return [product, leaf(f"layers.{layer}.a", came=0.0), leaf(f"layers.{layer}.b", came=0.0)]


@pytest.mark.parametrize("weight", [0.0, 1.0, None])
def test_factors_of_several_layers_are_one_finding(weight: float | None) -> None:
    """Both factors of a low-rank adapter are zero, in each layer, or neither is."""
    both = call(run("AddBackward0", 1, 4, op="add", line=20), *factors(0), *factors(1))
    names = [run.parameter for run in both.nodes if run.parameter]
    parameters = [parameter(name, alive=False, defined=at(10 if name.endswith("a") else 11)) for name in names]
    stats = tuple(ParameterStat(name, weight, 0.0, 0.0) for name in names)
    steps = [TracedStep(Step(i, 0.1, 1.0, (i,), stats), [dataclasses.replace(both, index=i, step=i)]) for i in range(4)]
    found = only(Trace(steps, Facts(tuple(parameters))))
    assert len(found.parameters) == 4
    named = [("cut", 16), ("defined", 10), ("defined", 11), ("failed", 90)]
    assert roles(found) == (named if weight == 0 else [named[0], named[-1]])
    assert ("each is a factor" in found.title) == (weight == 0)


def normalised(left: float = 1e-7, learned: float = 1e-7, calls: int = 6) -> Trace:
    """A layer whose result is divided by its norm in line 11: of gradients of 5, `left` is left."""
    runs = [
        run("SumBackward0", 1, 5, line=12),
        run("DivBackward0", 3, 2, line=11, came=(5.0,), gave=(5.0, 5.0)),
        run("LinalgVectorNormBackward0", 3, op="norm", line=11, came=(5.0,), gave=(5.0,)),
        run("AddmmBackward0", 4, line=10, came=(left,), gave=(left,)),
        leaf("a.weight", came=learned),
        leaf("b.weight"),
    ]
    return traced(*(call(*runs, index=i) for i in range(calls)), parameters=reached("a.weight", "b.weight"))


def test_gradients_that_cancel_but_for_rounding() -> None:
    found = only(normalised())
    assert (found.kind, found.confidence, found.parameters) == ("zero-grad", "likely", ("a.weight",))
    assert roles(found) == [("cut", 11), ("failed", 90)]
    assert "cancels but for rounding: 2e-08 of it is left" in found.title


def test_gradients_that_are_more_than_rounding() -> None:
    assert kinds(normalised(left=1e-4)) == []
    assert kinds(normalised(learned=0.1)) == []  # it learns from something else
    assert kinds(normalised(calls=4)) == []
    first, others = next(iter(normalised().backwards)), [*normalised(left=0.1).backwards][1:]
    assert kinds(traced(first, *others, parameters=reached("a.weight", "b.weight"))) == []


# Normalisations over single values


def group_normed(
    index: int,
    gave: tuple[float, float, float],
    norm: str = "NativeGroupNormBackward0",
    learned: float | None = None,
) -> BackwardCall:
    """A convolution, and a normalisation that gives its input, weight and bias gradients with the norms `gave`."""
    return call(
        run("SumBackward0", 1, op="sum", line=13),
        run(norm, 2, 3, 4, op="group_norm", line=12, module="norm", gave=gave),
        run("ConvolutionBackward0", 5, op="conv1d", line=11, module="mix", came=gave[:1], gave=gave[:1]),
        leaf("norm.weight", came=gave[1]),
        leaf("norm.bias", came=gave[2]),
        leaf("mix.weight", came=gave[0] if learned is None else learned),
        index=index,
    )


NORMALISED = reached("mix.weight", "norm.weight", "norm.bias")


def test_a_normalisation_over_single_values() -> None:
    trace = traced(*(group_normed(i, (1e-5, 1e-6, 0.5)) for i in range(6)), parameters=NORMALISED)
    found = only(trace)
    assert (found.kind, found.confidence, found.parameters) == ("zero-grad", "likely", ("mix.weight", "norm.weight"))
    assert found.sites[0].role == "cut" and found.sites[0].site == at(12)
    assert found.title == (
        "group_norm gives a constant, as it does if it normalises over single values, and passes on only rounding "
        "errors (1e-05 of the gradient): mix.weight, norm.weight never learn"
    )


def test_a_weight_of_exact_zeros_behind_it_is_the_same_finding() -> None:
    parameters = [parameter("mix.weight"), parameter("norm.weight", alive=False), parameter("norm.bias")]
    trace = traced(*(group_normed(i, (1e-5, 0.0, 0.5)) for i in range(6)), parameters=parameters)
    assert only(trace).parameters == ("mix.weight", "norm.weight")


@pytest.mark.parametrize(
    "gave",
    [(1e-5, 0.2, 0.5), (0.9, 1e-6, 0.5), (1e-5, 1e-6, 0.0)],
    ids=["the weight learns", "the input gets a gradient", "nothing is known of the bias"],
)
def test_normalisations_that_only_look_like_it(gave: tuple[float, float, float]) -> None:
    assert kinds(traced(*(group_normed(i, gave) for i in range(6)), parameters=NORMALISED)) == []


def test_one_call_with_another_gradient_is_enough() -> None:
    calls = [group_normed(i, (1e-5, 1e-6, 0.5)) for i in range(8)]
    assert kinds(traced(*calls[:4], parameters=NORMALISED)) == []
    assert kinds(traced(*calls, group_normed(8, (0.3, 0.2, 0.5)), parameters=NORMALISED)) == []


# Two factors that are set to zero


def adapted(step: int, up: float, through: float, name: str = "MmBackward0") -> BackwardCall:
    """A layer whose adapter gives its second factor and the product before it gradients with these norms."""
    return call(
        run("AddBackward0", 1, 5, op="add", line=13),
        run(name, 2, 3, op="linear", line=12, module="layer", gave=(through, up)),
        run("MmBackward0", 4, op="linear", line=12, module="layer", came=(through,), gave=(through,)),
        leaf("layer.up", came=up),
        leaf("layer.down", came=through),
        leaf("skip.weight"),
        index=step,
        step=step,
    )


ADAPTED = [*reached("layer.up", "layer.down", defined=at(5)), *reached("skip.weight")]


def test_two_factors_that_are_set_to_zero() -> None:
    calls = [adapted(i, *((0.5, 0.5) if i < 8 else (0.0, 0.0))) for i in range(16)]
    found = only(traced(*calls, parameters=ADAPTED))
    assert (found.kind, found.confidence, found.step) == ("zero-grad", "likely", 8)
    assert found.parameters == ("layer.down", "layer.up")
    assert roles(found) == [("cut", 12), ("defined", 5), ("failed", 90)]
    assert found.title == (
        "both factors of linear are zero, and each is a factor of the other's gradient: layer.down, layer.up never "
        "learn, though they did before"
    )


def test_adapters_that_go_on_after_a_restart() -> None:
    """Only the second factor is zero: it gets a gradient, and moves."""
    restarted = [adapted(i, 0.5, 0.5 if i < 8 else 0.0) for i in range(10)]
    assert kinds(traced(*restarted, *(adapted(i, 0.5, 0.5) for i in range(10, 16)), parameters=ADAPTED)) == []
    assert kinds(traced(*restarted, *(adapted(i, 0.5, 0.0) for i in range(10, 16)), parameters=ADAPTED)) == []


def test_a_square_that_reached_zero_is_no_death() -> None:
    calls = [adapted(i, *((0.5, 0.5) if i < 8 else (0.0, 0.0)), name="MulBackward0") for i in range(16)]
    assert kinds(traced(*calls, parameters=ADAPTED)) == []


# Bounds of normalisations over single values


@pytest.mark.parametrize(
    ("gave", "calls", "reported"),
    [
        ((0.9e-3, 1e-6, 0.5), 6, True),
        ((1.1e-3, 1e-6, 0.5), 6, False),
        ((1e-5, 0.45e-3, 0.5), 6, True),
        ((1e-5, 0.55e-3, 0.5), 6, False),
        ((1e-5, 1e-6, 0.5), 4, False),
        ((1e-5, 1e-6, 0.5), 5, True),
    ],
)
def test_how_little_a_normalisation_has_to_pass_on(
    gave: tuple[float, float, float], calls: int, reported: bool
) -> None:
    assert bool(kinds(traced(*(group_normed(i, gave) for i in range(calls)), parameters=NORMALISED))) == reported


@pytest.mark.parametrize(("norm", "names"), [(0.9e-3, ("mix.weight", "norm.weight")), (1.1e-3, ("norm.weight",))])
def test_how_little_a_parameter_before_a_normalisation_has_to_learn(norm: float, names: tuple[str, ...]) -> None:
    calls = [group_normed(index, (1e-5, 1e-6, 0.5), learned=norm) for index in range(6)]
    assert only(traced(*calls, parameters=NORMALISED)).parameters == names


@pytest.mark.parametrize(
    ("more", "reported"),
    [
        ({"left": 0.9e-5}, True),
        ({"left": 1.1e-5}, False),
        ({"learned": 4.5e-4}, True),
        ({"learned": 5.5e-4}, False),
        ({"calls": 5}, True),
    ],
)
def test_how_little_a_sum_that_cancels_has_to_leave(more: dict, reported: bool) -> None:
    assert bool(kinds(normalised(**more))) == reported


def test_half_of_the_last_calls_are_not_more_than_half() -> None:
    half = [flat(index=i) if i > 19 and i % 2 else dataclasses.replace(STEP, index=i, step=i) for i in range(32)]
    assert kinds(traced(*half, parameters=[parameter("a.weight")])) == []


@pytest.mark.parametrize(
    ("recorded", "reported"),
    [
        ((*range(9), 10, 23), False),  # two steps of an empty loss
        ((*range(9), 10, 17, 23), True),
        ((7, 8, 10, 17, 23), False),  # two of the steps before
        ((6, 7, 8, 10, 17, 23), True),
    ],
)
def test_how_many_steps_of_an_empty_loss_have_to_be_recorded(recorded: tuple[int, ...], reported: bool) -> None:
    losses = [0.5] * 9 + [0.0] * 15
    calls = [emptied(i, "MulBackward0", 1.0 if losses[i] else 0.0, losses[i]) for i in recorded]
    steps = [TracedStep(Step(i, 0.0, loss, ()), [c for c in calls if c.step == i]) for i, loss in enumerate(losses)]
    assert bool(kinds(Trace(Steps(steps), Facts(tuple(reached("a.weight")))))) == reported


@pytest.mark.parametrize(("empty", "reported"), [(11, False), (12, True)])
def test_how_long_a_loss_has_to_be_empty(empty: int, reported: bool) -> None:
    zeros = [i >= 12 for i in range(12 + empty)]
    calls = [emptied(i, "MulBackward0", 0.0 if z else 1.0, 0.0 if z else 0.5) for i, z in enumerate(zeros)]
    assert bool(kinds(traced(*calls, parameters=reached("a.weight")))) == reported
