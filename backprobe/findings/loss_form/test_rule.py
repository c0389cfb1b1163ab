"""The rules on hand-written records."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
from handmade import at, call, kinds, leaf, only, parameter, roles, run, traced
from learning import reached, sites_of_only

from backprobe.records import BackwardCall, GradStat, NodeRun, Root

TRAINED = reached("head.weight")


def chain(*names: str, **more) -> BackwardCall:
    """A call whose nodes, from line 20 on, each have one input: the next one; the last has that of a layer."""
    runs = [run(name, i + 1, line=20 + i, module=f"m{i}", op=_op(name)) for i, name in enumerate(names)]
    return call(*runs, run("AddmmBackward0", len(runs) + 1), leaf("head.weight"), **more)


def _op(name: str) -> str:
    return {"LogSoftmaxBackward0": "cross_entropy", "SoftmaxBackward0": "softmax"}.get(name, name)


def found_in(*names: str) -> list[str]:
    return kinds(traced(chain(*names), parameters=TRAINED))


def falling(*names: str, values: Sequence[float] = (-2.0, -2.1, -2.2, -2.3, -2.4, -2.5), **more) -> list[BackwardCall]:
    """Calls at line 90 whose losses have these `values`."""
    return [
        chain(*names, index=i, roots=(Root(0, (), "float32", value, None),), **more) for i, value in enumerate(values)
    ]


PICKED = ("MeanBackward0", "GatherBackward0", "LogSoftmaxBackward0")

#: Kind -> a run that shows it, and the sites of the finding.
FIRES = {
    "normalised-twice": (
        traced(chain("NllLossBackward0", "LogSoftmaxBackward0", "SoftmaxBackward0"), parameters=TRAINED),
        [("cause", 22), ("cause", 21), ("failed", 90)],
    ),
    "logits-never-negative": (
        traced(chain("NllLossBackward0", "LogSoftmaxBackward0", "ReluBackward0"), parameters=TRAINED),
        [("cause", 22), ("cause", 21), ("failed", 90)],
    ),
    "logarithm-missing": (
        traced(chain("NllLossBackward0", "ViewBackward0", "SoftmaxBackward0"), parameters=TRAINED),
        [("cause", 22), ("cause", 20), ("failed", 90)],
    ),
    "minimised-likelihood": (
        traced(*falling(*PICKED), parameters=TRAINED),
        [("cause", 20), ("cause", 22), ("failed", 90)],
    ),
}


@pytest.mark.parametrize("kind", FIRES)
def test_one_run_one_finding(kind: str) -> None:
    trace, sites = FIRES[kind]
    assert sites_of_only(kind, trace) == sites


def test_the_least_loss_is_named() -> None:
    found = only(FIRES["normalised-twice"][0])
    least = math.log(1 + 7 / math.e)
    assert found.title.startswith("cross_entropy expects logits and gets the result of softmax (module m2): ")
    assert f"with 8 classes the loss cannot fall below {least:.4f}, " in found.title
    assert (found.module, found.confidence, found.evidence["classes"]) == ("m2", "certain", 8)
    assert found.evidence["least_loss"] == least


def test_the_number_of_classes_is_not_guessed() -> None:
    one = chain("MeanBackward0", "LogSoftmaxBackward0", "SoftmaxBackward0")
    stats = (GradStat((2, 3, 4), "float32", 1.0),)
    wide = NodeRun(one.nodes[1].node, 1, 0.0, stats, stats)
    named = call(*(wide if r is one.nodes[1] else r for r in one.nodes))
    assert "with 3 classes" in only(traced(named, parameters=TRAINED)).title
    custom = run("LogSoftmaxBackward0", 2, line=21, op="log_softmax")
    wide = NodeRun(custom.node, 1, 0.0, stats, stats)
    other = call(one.nodes[0], wide, *one.nodes[2:])
    assert "no class gets a probability near 1" in only(traced(other, parameters=TRAINED)).title


@pytest.mark.parametrize("between", ["ViewBackward0", "SqueezeBackward1", "ToCopyBackward0", "IndexBackward0"])
def test_what_passes_values_on_may_be_between(between: str) -> None:
    assert found_in("LogSoftmaxBackward0", between, between, "SoftmaxBackward0") == ["normalised-twice"]


@pytest.mark.parametrize(
    "names",
    [
        ("BinaryCrossEntropyWithLogitsBackward0", "SigmoidBackward0"),
        ("BinaryCrossEntropyWithLogitsBackward0", "SoftmaxBackward0"),
        ("BinaryCrossEntropyBackward0", "SigmoidBackward0", "SelectBackward0", "SigmoidBackward0"),
        ("LogSigmoidBackward0", "SigmoidBackward0"),
        ("LogSigmoidBackward0", "NegBackward0", "SigmoidBackward0"),
        ("LogSoftmaxBackward0", "SigmoidBackward0"),
    ],
)
def test_binary_losses_and_others(names: tuple[str, ...]) -> None:
    assert found_in(*names) == ["normalised-twice"]


@pytest.mark.parametrize(
    "names",
    [
        ("LogSoftmaxBackward0", "LogSoftmaxBackward0"),
        ("LogSoftmaxBackward0", "DivBackward0", "SoftmaxBackward0"),
        ("BinaryCrossEntropyBackward0", "SigmoidBackward0"),
        ("BinaryCrossEntropyBackward0", "SoftmaxBackward0"),
        ("LogBackward0", "AddBackward0", "SoftmaxBackward0"),
        ("KlDivBackward0", "LogSoftmaxBackward0"),
        ("LogSoftmaxBackward0", "MeanBackward1", "ReluBackward0"),
        ("LogSigmoidBackward0", "ReluBackward0"),
        ("SigmoidBackward0", "SigmoidBackward0"),
        ("SumBackward0", "SoftmaxBackward0", "SigmoidBackward0"),
    ],
)
def test_right_losses_are_silent(names: tuple[str, ...]) -> None:
    assert found_in(*names) == []


def test_targets_may_be_probabilities() -> None:
    nodes = [
        run("BinaryCrossEntropyWithLogitsBackward0", 1, 2),
        run("AddmmBackward0", 3),
        run("SigmoidBackward0", 1),
        leaf("head.weight"),
    ]
    assert kinds(traced(call(*nodes), parameters=TRAINED)) == []


def test_logits_of_a_distribution() -> None:
    nodes = [
        run("MeanBackward0", 1, line=20),
        run("SubBackward0", 3, 2, line=21, op="sub"),
        run("LogsumexpBackward0", 3, line=21),
        run("SoftmaxBackward0", 4, line=22, op="softmax"),
        run("AddmmBackward0", 5),
        leaf("head.weight"),
    ]
    found = only(traced(call(*nodes), parameters=TRAINED))
    assert (found.kind, roles(found)[0]) == ("normalised-twice", ("cause", 22))
    assert found.title.startswith("log_softmax expects logits and gets the result of softmax: ")


def test_a_binary_loss_over_relu_is_named_by_its_bound() -> None:
    trace = traced(chain("BinaryCrossEntropyWithLogitsBackward0", "ReluBackward0"), parameters=TRAINED)
    assert "the loss of a negative sample cannot fall below 0.693" in only(trace).title


# Probabilities in the place of their logarithms


@pytest.mark.parametrize(
    "names", [("NllLoss2DBackward0", "SoftmaxBackward0"), ("CtcLossBackward0", "SigmoidBackward0")]
)
def test_other_losses_of_log_probabilities(names: tuple[str, ...]) -> None:
    assert found_in(*names) == ["logarithm-missing"]


def divergence(source: str, target: str, product: str = "MulBackward0", op: str | None = "kl_div") -> list[str]:
    """Return the kinds found for a sum over `product` of a `target` and a `source`, both with a graph."""
    nodes = [
        run("SumBackward0", 1, op=op),
        run(product, 2, 3, op=op),
        run(target, 4, op="target"),
        run(source, 4, op="source"),
        run("AddmmBackward0", 5),
        leaf("head.weight"),
    ]
    return kinds(traced(call(*nodes), parameters=TRAINED))


def test_only_the_input_of_a_divergence_needs_logarithms() -> None:
    assert divergence("SoftmaxBackward0", "SoftmaxBackward0") == ["logarithm-missing"]
    assert divergence("LogSoftmaxBackward0", "SoftmaxBackward0") == []
    assert divergence("SoftmaxBackward0", "LogSoftmaxBackward0", "SubBackward0") == ["logarithm-missing"]
    assert divergence("SoftmaxBackward0", "SoftmaxBackward0", op="mul") == []


# A likelihood that is minimised


def silent(*calls: BackwardCall, parameters: Sequence = TRAINED) -> bool:
    return kinds(traced(*calls, parameters=parameters)) == []


@pytest.mark.parametrize(
    "names",
    [
        ("SumBackward0", "IndexBackward0", "LogSoftmaxBackward0"),
        ("MeanBackward0", "SqueezeBackward1", "GatherBackward0", "LogBackward0", "AddBackward0", "SoftmaxBackward0"),
        ("MeanBackward0", "DiagonalBackward0", "LogSoftmaxBackward0"),
    ],
)
def test_other_ways_to_pick(names: tuple[str, ...]) -> None:
    assert kinds(traced(*falling(*names), parameters=TRAINED)) == ["minimised-likelihood"]


def test_what_is_meant_is_silent() -> None:
    assert silent(*falling("NegBackward0", *PICKED))
    assert silent(*falling("MeanBackward0", "MulBackward0", *PICKED[1:]))  # an advantage
    assert silent(*falling("MeanBackward0", "LogSoftmaxBackward0"))  # of all classes
    assert silent(*falling("NegBackward0", "NllLossBackward0", "LogSoftmaxBackward0"))
    assert silent(*falling(*PICKED)[:5])
    assert silent(*falling(*PICKED, values=[-2.0] * 6))
    assert silent(*falling(*PICKED, values=(-0.1, -0.2, -0.3, -0.4, -0.5, -0.6)))  # a model that is meant to forget
    assert silent(*falling(*PICKED, values=(2.0, -2.1, -2.2, -2.3, -2.4, -2.5)))
    assert silent(*falling(*PICKED), parameters=[parameter("head.weight", trained=False)])  # an attack on the input
    discriminator = chain("NllLossBackward0", "LogSoftmaxBackward0", index=9, site=at(80))
    assert silent(*falling(*PICKED), discriminator)


def test_the_fall_is_named() -> None:
    found = only(FIRES["minimised-likelihood"][0])
    assert found.title.endswith("from -2 to -2.5")
    assert found.evidence == {"op": "cross_entropy", "first": -2.0, "last": -2.5, "calls": 6}


@pytest.mark.parametrize(
    ("values", "reported"),
    [
        ((-2.0, -2.1, -2.2, -2.3, -2.4), False),
        ((-2.0, -2.1, -2.2, -2.3, -2.4, -2.5), True),
        # Three of ten values at each end are compared: not one, and not six.
        ((-2.5, -2.0, -2.0, -20.0, -3.0, -3.0, -3.0, -3.0, -3.0, -2.4), True),
        ((-1.0, -1.1, -1.2, -1.3, -1.4, -1.5), False),  # of eight classes
        ((-1.1, -1.1, -1.2, -1.3, -1.4, -1.5), True),
    ],
)
def test_how_a_likelihood_has_to_fall(values: tuple[float, ...], reported: bool) -> None:
    assert bool(kinds(traced(*falling(*PICKED, values=values), parameters=TRAINED))) == reported
