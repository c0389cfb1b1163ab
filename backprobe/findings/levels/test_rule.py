"""Findings about levels that precede a divergence: updates, activations, attention, weights, second moments."""

from __future__ import annotations

import pytest
from handmade import kinds, looked, only, traced
from learning import OPTIMIZER, STEP, sites_of_only

from backprobe import Trace
from backprobe.findings.levels.alarms import Monitor
from backprobe.records import Measured


def run() -> Trace:
    return traced(STEP, seen=[OPTIMIZER], ask="levels")


#: A loss that has not come down.
HIGH = {"loss_median|loss": [3.0] * 20}
ONES = [1.0] * 7
#: Kind -> a run that shows it; the sites of the finding.
FIRES = {
    "update-too-large": (
        looked({"update_ratio|a.weight": [0.3] * 8}, traced(STEP, seen=[OPTIMIZER], ask="levels")),
        [("optimizer", 6)],
    ),
    "divergence-ahead": (
        looked({"attention_logit|a": [2.0] * 8 + [45.0, 60.0, 80.0]}, traced(STEP, seen=[OPTIMIZER], ask="levels")),
        [("optimizer", 6)],
    ),
    "loss-spike": (
        looked({"loss_median|loss": [4.0, 3.0, 2.1, 2.0, 1.9] + [2.0] * 8 + [9.0]}, run()),
        [("optimizer", 6)],
    ),
    "attention-collapse": (
        looked({"attention_entropy|a": [2.0] + [0.02] * 6, "loss_median|loss": [3.0] * 7}, run()),
        [("optimizer", 6)],
    ),
    "rank-collapse": (looked({"weight_rms|a.weight": [1.0] * 11}, run(), rank=[8.0] * 10 + [1.02]), [("optimizer", 6)]),
    "dead-units": (looked({"dead|a": [0.2] + [0.95] * 6}, run()), [("optimizer", 6)]),
    "saturated-units": (
        looked(
            {"saturated|a": [0.2] + [0.95] * 6, "activation_rms|a": [1.0] * 7, "activation_rms|b": [1.0] * 7}, run()
        ),
        [("optimizer", 6)],
    ),
}


def test_updates_that_are_too_small() -> None:
    tiny = dict.fromkeys(("update_ratio|a.weight", "grad_norm|a.weight"), [1e-7] * 20)
    assert sites_of_only("update-too-small", looked({**tiny, **HIGH}, run())) == [("optimizer", 6)]


@pytest.mark.parametrize("kind", FIRES)
def test_one_run_one_finding(kind: str) -> None:
    trace, sites = FIRES[kind]
    assert sites_of_only(kind, trace) == sites


def of(quantity: str, values: list[float], **more: list[float]) -> list[str]:
    return kinds(looked({f"{quantity}|a.weight": values, **more}, traced(STEP, seen=[OPTIMIZER], ask="levels")))


def test_an_alarm_has_place_step_and_size() -> None:
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
        ("weight_rms", [0.01] * 8 + [0.9] * 4),  # of two matrices or one
        ("weight_gain", [30.0] * 12),  # of one
        ("adam_ratio", [4.0] * 12),
        ("activation_rms", [1.0] + [24.0] * 8),
        ("activation_rms", [0.3] * 24 + [9.0] * 4),  # later than the first steps
        ("dead", [0.95, 0.95, 0.95, 0.95, 0.5] * 3),
        ("attention_entropy", [2.0] + [0.01] * 12),  # the loss is not known
        ("update_ratio", [1e-7] * 30),  # no gradient
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
        ("weight_gain", [1.1] * 8 + [9.0] * 3),
        ("activation_rms", [0.2, 7.0, 9.0, 10.0, 12.0]),
        ("attention_logit", [3.0, 50.0, 60.0, 60.0]),
        ("headroom", [1e4] * 4 + [90.0, 80.0, 60.0]),
    ],
)
def test_levels_that_are_one(quantity: str, values: list[float]) -> None:
    assert of(quantity, values) == ["divergence-ahead"]


def test_gradients_that_are_far_beyond_their_second_moment() -> None:
    curve = [1.0] * 6 + [6.0] * 2
    assert of("adam_ratio", curve, **{"adam_ratio|b.weight": curve}) == ["divergence-ahead"]
    assert of("adam_ratio", curve, **{"adam_ratio|b.weight": [1.0] * 8}) == []
    assert of("adam_ratio", curve[:-1], **{"adam_ratio|b.weight": curve[:-1]}) == []


def beside(quantity: str, values: list[float], *others: list[float], **more: list[float]) -> list[str]:
    """Of ``a.weight``, beside other matrices."""
    names = [f"{quantity}|{name}.weight" for name in "bcdef"]
    return of(quantity, values, **dict(zip(names, others, strict=False)), **more)


def test_updates_of_one_layer_that_are_far_from_all_others() -> None:
    slow, fast = [0.001] * 8, [0.02] * 8
    sizes = {f"weight_rms|{name}.weight": [1.0] * 8 for name in "abcd"}
    assert beside("update_ratio", fast, slow, slow, slow, **sizes) == ["update-too-large"]
    assert beside("update_ratio", fast, slow, slow, [0.015] * 8, **sizes) == []  # two are as fast
    assert beside("update_ratio", fast, slow, slow, **sizes) == []  # too few to say what is usual
    began_at_zero = sizes | {"weight_rms|a.weight": [0.01] * 8}
    assert beside("update_ratio", fast, slow, slow, slow, **began_at_zero) == []
    assert beside("update_ratio", [0.5] * 8, slow, slow, slow, **began_at_zero) == []


def test_a_matrix_that_outgrows_the_others() -> None:
    still, grows = [0.1] * 8, [0.1, 0.1, 0.2, 0.3, 0.4, 0.5, 0.5, 0.6]
    assert beside("weight_rms", grows, still, still) == ["divergence-ahead"]
    assert beside("weight_rms", grows, grows, still) == []
    assert beside("weight_rms", [0.0, *grows[1:]], still, still) == []  # began at zero
    ends = {"activation_rms|b": [1.0] * 8, "activation_rms|a": [1.0] * 8}  # the last one is what the model puts out
    assert beside("weight_rms", grows, still, still, **ends) == []


def test_what_grows_towards_large_targets_is_as_meant() -> None:
    falls, rises = {"loss_median|loss": [9.0] + [8.5] * 11}, {"loss_median|loss": [9.0] + [9.5] * 11}
    grows = {"activation_rms|a": [1.0] * 8 + [40.0] * 4}
    assert kinds(looked(grows | rises, run())) == ["divergence-ahead"]
    assert kinds(looked(grows | falls, run())) == []  # what is put out
    weight = {"weight_rms|a.weight": [1.0] * 12, "weight_gain|a.weight": [1.0] * 8 + [9.0] * 4}
    before_a_view = {"activation_rms|a": [1.0] * 12, "activation_rms|view": [1.0] * 12}
    assert kinds(looked(weight | before_a_view | rises, run())) == ["divergence-ahead"]
    assert kinds(looked(weight | before_a_view | falls, run())) == []
    logits = {"attention_logit|a": [2.0] * 8 + [90.0] * 4}
    assert kinds(looked(logits | {"activation_rms|a": [1.0] * 12} | falls, run())) == ["divergence-ahead"]


@pytest.mark.parametrize(
    ("last", "then", "found"),
    [
        ([0.1] * 8 + [200.0] * 4, 5.0, []),  # it has grown more and is larger
        ([0.1] * 8 + [200.0] * 4, 8.5, ["divergence-ahead"]),  # for nothing
        ([1.0] * 12, 5.0, ["divergence-ahead"]),  # between norms
        ([0.0] * 8 + [20.0] * 4, 5.0, ["divergence-ahead"]),  # began at zero
        ([10.0] * 8 + [200.0] * 4, 5.0, ["divergence-ahead"]),
    ],
)
def test_what_grows_for_what_is_put_out(last: list[float], then: float, found: list[str]) -> None:
    inside = {"activation_rms|a": [1.0] * 8 + [40.0] * 4, "weight_rms|b.weight": [1.0] * 12}
    loss = {"loss_median|loss": [9.0] + [then] * 11}
    assert kinds(looked(inside | {"activation_rms|b": last} | loss, run())) == found


@pytest.mark.parametrize(
    ("activations", "gain", "found"),
    [
        ([1.0] * 8 + [9.0] * 3, [1.0] * 11, ["divergence-ahead"]),
        ([1.0] * 8 + [9.0] * 3, [1.0] * 8 + [3.0] * 3, []),  # by its weight
        ([0.01] * 8 + [0.09] * 3, [1.0] * 11, []),  # small
        ([0.0] * 11, [0.0] * 11, []),
    ],
)
def test_more_comes_into_the_first_layer(activations: list[float], gain: list[float], found: list[str]) -> None:
    still = {"weight_rms|a.weight": [1.0] * 11, "activation_rms|b": [1.0] * 11, "activation_rms|c": [1.0] * 11}
    curves = {"activation_rms|a": activations, "weight_gain|a.weight": gain} | still
    assert kinds(looked(curves, run())) == found
    assert kinds(looked({"activation_rms|d": [1.0] * 11} | curves, run())) == []  # it is not the first


def test_a_rank_that_is_low_while_the_loss_may_be_on_its_way_down() -> None:
    weights = {"weight_rms|a.weight": [1.0] * 12, "loss_median|loss": [3.0] * 12}
    assert kinds(looked(weights, run(), rank=[8.0] * 11 + [1.2])) == []
    assert kinds(looked(weights, run(), rank=[8.0] * 10 + [1.2] * 2)) == ["rank-collapse"]
    weights["loss_median|loss"] = [3.0] + [1.0] * 11
    assert kinds(looked(weights, run(), rank=[8.0] * 10 + [1.2] * 2)) == []


def test_a_weight_that_begins_too_large() -> None:
    assert beside("weight_gain", [20.0] * 4, [1.0] * 4, [1.2] * 4) == ["divergence-ahead"]
    assert beside("weight_gain", [20.0] * 4, [12.0] * 4, [10.0] * 4) == []


def test_attention_that_looks_at_one_place_from_the_start() -> None:
    assert of("attention_entropy", [0.01] * 20, **HIGH) == ["attention-collapse"]


def test_attention_that_is_sharp_because_it_learned_to_be_is_none() -> None:
    falls = {"loss_median|loss": [3.0, 2.0, 1.0] + [0.1] * 6}
    assert of("attention_entropy", [2.0] + [0.01] * 8, **falls) == []


def test_the_loss_jumps_and_what_is_no_jump() -> None:
    usual = [4.0, 2.0] + [1.0, 0.9, 1.1] * 4
    jump = kinds(looked({"loss_median|loss": [*usual, 9.0]}, run()))
    assert jump == ["loss-spike"]
    assert kinds(looked({"loss_median|loss": [*usual, 1.4]}, run())) == []
    weights = {"weight_rms|a.weight": [1.0] * len(usual) + [25.0], "weight_rms|b.weight": [1.0] * len(usual) + [3.5]}
    with_it = only(looked({"loss_median|loss": [*usual, 9.0], **weights}, run()))
    assert (with_it.module, with_it.parameters, with_it.step) == ("a", ("a.weight",), 10 * len(usual) - 9)
    assert kinds(looked({"loss_median|loss": [4.0] + [0.001] * 15 + [0.1]}, run())) == []  # small beside the first
    assert kinds(looked({"loss_median|loss": [0.1] + [-0.05] * 15 + [3.0]}, run())) == []  # around zero
    low = [4.0] + [0.01] * 15 + [0.6]
    assert kinds(looked({"loss_median|loss": low, "loss_max|loss": [4.0] + [0.02] * 15 + [0.9]}, run())) == [
        "loss-spike"
    ]
    single = {"loss_median|loss": low, "loss_max|loss": [4.0] + [0.7] * 15 + [0.9]}
    assert kinds(looked(single, run())) == []  # single losses were as high all along


def test_what_hardly_moves_and_what_is_warmed_up_or_over() -> None:
    gradient = {"grad_norm|a.weight": [1.0] * 20}
    tiny = [1e-7] * 20
    assert of("update_ratio", tiny, **gradient) == []  # nothing is known of the loss, nor of others
    assert of("update_ratio", tiny, **gradient, **HIGH) == ["update-too-small"]
    assert of("update_ratio", [1e-7 * 1.5**i for i in range(20)], **gradient, **HIGH) == []
    gradient["weight_norm|a.weight"] = [5.0] * 20
    assert of("unchanged", [0.99] * 20, **gradient) == ["update-too-small"]
    assert of("unchanged", [0.99] * 20, **gradient, **{"lr|AdamW": [1e-3] + [1e-5] * 19}) == []
    gradient["weight_norm|a.weight"] = [5.0 + 0.01 * i for i in range(20)]  # it moves in other steps
    assert of("unchanged", [0.99] * 20, **gradient) == []


def test_consequences_of_a_divergence_are_in_its_evidence() -> None:
    curves = {"dead|a": [0.95] * 30, "dead|b": [0.1] * 30, "attention_logit|a": [2.0] * 10 + [90.0] * 20}
    curves["attention_entropy|a"] = [2.0] * 12 + [0.0] * 18
    ahead, dead = looked(curves | {"loss_median|loss": [3.0] * 30}, run()).findings
    assert (ahead.kind, dead.kind) == ("divergence-ahead", "dead-units")
    assert "later" not in dead.evidence
    assert ahead.evidence["later"] == ["step 160: attention-collapse of a"]


def test_a_monitor_waits_while_something_may_become_an_alarm() -> None:
    monitor, waits = Monitor(), []
    for at, logit in enumerate([2.0] * 7 + [90.0] * 4 + [2.0]):
        monitor.add(Measured(10 * at, ("attention_logit|a",), (logit,)))
        waits.append(monitor.waits)
    assert waits == [False] * 7 + [True, True, False, False, False]


# Bounds: of each, a value just beyond it and one just within.

SIZES = {f"weight_rms|{name}.weight": [1.0] * 8 for name in "abcd"}
STILL = [0.1] * 8
ENDS = {"activation_rms|b": [1.0] * 8, "activation_rms|a": [1.0] * 8}


@pytest.mark.parametrize(
    ("quantity", "within", "beyond", "kind"),
    [
        ("update_ratio", [0.01] * 4 + [0.099] * 5, [0.01] * 4 + [0.101] * 5, "update-too-large"),
        ("update_ratio", [0.01] * 4 + [0.2] * 4, [0.01] * 4 + [0.2] * 5, "update-too-large"),
        ("attention_logit", [5.0] * 8 + [39.0] * 3, [5.0] * 8 + [41.0] * 3, "divergence-ahead"),
        ("attention_logit", [20.0] * 8 + [79.0] * 3, [20.0] * 8 + [81.0] * 3, "divergence-ahead"),
        ("attention_logit", [5.0] * 8 + [41.0] * 2, [5.0] * 8 + [41.0] * 3, "divergence-ahead"),
        ("attention_logit", [5.0] * 4 + [41.0] * 3, [5.0] * 5 + [41.0] * 3, "divergence-ahead"),  # early looks
        ("attention_logit", [2.0] + [39.0] * 3, [2.0] + [41.0] * 3, "divergence-ahead"),
        ("attention_logit", [5.0] + [49.0] * 3, [5.0] + [51.0] * 3, "divergence-ahead"),
        ("attention_logit", [2.0] + [41.0] * 2, [2.0] + [41.0] * 3, "divergence-ahead"),
        ("activation_rms", [2.0] * 8 + [29.0] * 3, [2.0] * 8 + [31.0] * 3, "divergence-ahead"),
        ("activation_rms", [5.0] * 8 + [39.0] * 3, [5.0] * 8 + [41.0] * 3, "divergence-ahead"),
        ("activation_rms", [2.0] * 8 + [31.0] * 2, [2.0] * 8 + [31.0] * 3, "divergence-ahead"),
        ("activation_rms", [0.2] + [7.9] * 3, [0.2] + [8.1] * 3, "divergence-ahead"),
        ("activation_rms", [1.0] + [24.5] * 3, [1.0] + [25.5] * 3, "divergence-ahead"),
        ("activation_rms", [0.2] + [8.1] * 2, [0.2] + [8.1] * 3, "divergence-ahead"),
        ("activation_rms", [0.3] * 19 + [9.0] * 3, [0.3] * 18 + [9.0] * 3, "divergence-ahead"),  # up to step 200
        ("weight_gain", [1.1] * 8 + [7.9] * 3, [1.1] * 8 + [8.1] * 3, "divergence-ahead"),
        ("weight_gain", [2.0] * 8 + [9.9] * 3, [2.0] * 8 + [10.1] * 3, "divergence-ahead"),
        ("weight_gain", [1.1] * 8 + [8.1] * 2, [1.1] * 8 + [8.1] * 3, "divergence-ahead"),
        ("headroom", [1e4] * 4 + [101.0] * 3, [1e4] * 4 + [99.0] * 3, "divergence-ahead"),
        ("headroom", [1e4] * 4 + [99.0] * 2, [1e4] * 4 + [99.0] * 3, "divergence-ahead"),
        ("dead", [0.2] + [0.895] * 5, [0.2] + [0.905] * 5, "dead-units"),
        ("dead", [0.2] + [0.95] * 4, [0.2] + [0.95] * 5, "dead-units"),
        ("saturated", [0.2] + [0.795] * 5, [0.2] + [0.805] * 5, "saturated-units"),
        ("saturated", [0.2] + [0.95] * 4, [0.2] + [0.95] * 5, "saturated-units"),
    ],
)
def test_the_bound_of_a_quantity(quantity: str, within: list[float], beyond: list[float], kind: str) -> None:
    for values, found in ((within, []), (beyond, [kind])):
        inner = {f"activation_rms|{name}": [1.0] * len(values) for name in ("a.weight", "b")}
        assert of(quantity, values, **(inner if quantity == "saturated" else {})) == found


@pytest.mark.parametrize(
    ("within", "beyond", "other"),
    [
        ([0.0099] * 8, [0.0101] * 8, [0.0005] * 8),
        ([0.049] * 8, [0.051] * 8, [0.005] * 8),
    ],
)
def test_the_bounds_of_an_update_beside_others(within: list[float], beyond: list[float], other: list[float]) -> None:
    assert beside("update_ratio", within, other, other, other, **SIZES) == []
    assert beside("update_ratio", beyond, other, other, other, **SIZES) == ["update-too-large"]


@pytest.mark.parametrize(("size", "found"), [(0.09, []), (0.11, ["update-too-large"])])
def test_a_matrix_that_is_small_beside_others_started_at_zero(size: float, found: list[str]) -> None:
    slow, sizes = [0.001] * 8, SIZES | {"weight_rms|a.weight": [size] * 8}
    assert beside("update_ratio", [0.5] * 8, slow, slow, slow, **sizes) == found


@pytest.mark.parametrize(
    ("within", "beyond", "other", "more"),
    [
        ([0.07] * 5 + [0.29] * 3, [0.07] * 5 + [0.31] * 3, STILL, {}),
        ([0.1] * 5 + [0.39] * 3, [0.1] * 5 + [0.41] * 3, STILL, {}),
        ([0.1] * 5 + [0.44] * 3, [0.1] * 5 + [0.46] * 3, [0.1] + [0.15] * 7, {}),
        ([0.1] * 6 + [0.41] * 2, [0.1] * 5 + [0.41] * 3, STILL, {}),
        ([0.1] * 5 + [0.59] * 3, [0.1] * 5 + [0.61] * 3, STILL, ENDS),  # the layer of the output
    ],
)
def test_the_bounds_of_a_matrix_that_grows(
    within: list[float], beyond: list[float], other: list[float], more: dict[str, list[float]]
) -> None:
    assert beside("weight_rms", within, other, other, **more) == []
    assert beside("weight_rms", beyond, other, other, **more) == ["divergence-ahead"]


@pytest.mark.parametrize(("within", "beyond", "other"), [(7.9, 8.1, 1.2), (9.9, 10.1, 2.0)])
def test_the_bounds_of_a_first_gain(within: float, beyond: float, other: float) -> None:
    assert beside("weight_gain", [within] * 4, [other] * 4, [other] * 4) == []
    assert beside("weight_gain", [beyond] * 4, [other] * 4, [other] * 4) == ["divergence-ahead"]


@pytest.mark.parametrize(
    ("within", "beyond"),
    [
        ([1.0] * 8 + [7.9] * 3, [1.0] * 8 + [8.1] * 3),
        ([0.1] * 8 + [0.99] * 3, [0.1] * 8 + [1.01] * 3),
        ([1.0] * 9 + [8.1] * 2, [1.0] * 8 + [8.1] * 3),
    ],
)
def test_the_bounds_of_the_input(within: list[float], beyond: list[float]) -> None:
    still = {"weight_rms|a.weight": [1.0] * 11, "activation_rms|b": [1.0] * 11, "activation_rms|c": [1.0] * 11}
    for values, found in ((within, []), (beyond, ["divergence-ahead"])):
        curves = {"activation_rms|a": values, "weight_gain|a.weight": [1.0] * 11} | still
        assert kinds(looked(curves, run())) == found


@pytest.mark.parametrize(("value", "found"), [(4.9, []), (5.1, ["divergence-ahead"])])
def test_the_bound_of_gradients_over_their_second_moment(value: float, found: list[str]) -> None:
    curve = [1.0] * 6 + [value] * 2
    assert of("adam_ratio", curve, **{"adam_ratio|b.weight": curve}) == found


@pytest.mark.parametrize(
    ("within", "beyond"),
    [
        ([4.0] + [2.0] * 7 + [9.0], [4.0] + [2.0] * 8 + [9.0]),
        ([4.0] + [1.6, 2.4] * 6 + [5.5], [4.0] + [1.6, 2.4] * 6 + [5.6]),
        ([4.0] + [2.0] * 12 + [2.95], [4.0] + [2.0] * 12 + [3.05]),
        ([40.0] + [2.0] * 12 + [5.9], [40.0] + [2.0] * 12 + [6.1]),
        # The latest twelve losses count: eleven would vary less, and thirteen more.
        ([4.0, 9.0] + [2.0] * 6 + [3.0] * 6 + [6.5], [4.0, 9.0] + [2.0] * 6 + [3.0] * 6 + [7.5]),
    ],
)
def test_the_bounds_of_a_jump(within: list[float], beyond: list[float]) -> None:
    assert kinds(looked({"loss_median|loss": within}, run())) == []
    assert kinds(looked({"loss_median|loss": beyond}, run())) == ["loss-spike"]


@pytest.mark.parametrize(("factor", "module"), [(2.9, ""), (3.1, "a")])
def test_the_layer_that_jumps_with_the_loss(factor: float, module: str) -> None:
    curves = {"loss_median|loss": [4.0] + [2.0] * 8 + [9.0], "weight_rms|a.weight": [1.0] * 9 + [factor]}
    assert (only(looked(curves, run())).module or "") == module


@pytest.mark.parametrize(
    ("entropy", "loss", "found"),
    [
        ([2.0] + [0.051] * 5, 3.0, False),
        ([2.0] + [0.049] * 5, 3.0, True),
        ([2.0] + [0.049] * 4, 3.0, False),
        ([0.6] + [0.045] * 5, 3.0, True),
        ([0.49] + [0.045] * 5, 3.0, False),
        ([0.51] + [0.045] * 5, 3.0, True),
        ([2.0] + [0.02] * 5, 1.79, False),
        ([2.0] + [0.02] * 5, 1.81, True),
        ([0.01] * 20, 2.69, False),
        ([0.01] * 20, 2.71, True),
        ([0.01] * 12, 3.0, False),
        ([0.01] * 13, 3.0, True),
    ],
)
def test_the_bounds_of_attention(entropy: list[float], loss: float, found: bool) -> None:
    losses = {"loss_median|loss": [3.0] + [loss] * (len(entropy) - 1)}
    assert of("attention_entropy", entropy, **losses) == (["attention-collapse"] if found else [])


@pytest.mark.parametrize(
    ("rank", "losses", "found"),
    [
        ([8.0] * 10 + [1.31] * 2, [3.0] * 12, False),
        ([8.0] * 10 + [1.29] * 2, [3.0] * 12, True),
        ([8.0] * 11 + [1.06], [], False),
        ([8.0] * 11 + [1.04], [], True),
        ([4.0] * 11 + [1.02], [], False),
        ([4.1] * 11 + [1.02], [], True),
    ],
)
def test_the_bounds_of_a_rank(rank: list[float], losses: list[float], found: bool) -> None:
    curves = {"weight_rms|a.weight": [1.0] * 12} | ({"loss_median|loss": losses} if losses else {})
    assert kinds(looked(curves, run(), rank=rank)) == (["rank-collapse"] if found else [])


def test_the_bounds_of_updates_that_are_too_small() -> None:
    gradient = {"grad_norm|a.weight": [1.0] * 20}
    assert of("update_ratio", [1.1e-5] * 20, **gradient, **HIGH) == []
    assert of("update_ratio", [0.9e-5] * 20, **gradient, **HIGH) == ["update-too-small"]
    short = {name: values[:16] for name, values in (gradient | HIGH).items()}
    assert of("update_ratio", [1e-7] * 16, **short) == []  # five early looks, and eleven after them
    longer = {name: values[:17] for name, values in (gradient | HIGH).items()}
    assert of("update_ratio", [1e-7] * 17, **longer) == ["update-too-small"]
    for other, found in (([8.8e-4] * 20, []), ([9.2e-4] * 20, ["update-too-small"])):
        assert beside("update_ratio", [9e-6] * 20, other, other, **gradient) == found


@pytest.mark.parametrize(
    ("share", "moved", "found"),
    [(0.945, 0.0, False), (0.955, 0.0, True), (0.99, 1.1e-5, False), (0.99, 0.9e-5, True)],
)
def test_the_bounds_of_updates_that_are_rounded_away(share: float, moved: float, found: bool) -> None:
    more = {"grad_norm|a.weight": [1.0] * 20, "weight_norm|a.weight": [5.0 * (1 + moved) ** i for i in range(20)]}
    assert of("unchanged", [share] * 20, **more) == (["update-too-small"] if found else [])


@pytest.mark.parametrize(("first", "raised"), [(9, False), (10, True)])
def test_measurements_before_step_ten_do_not_count(first: int, raised: bool) -> None:
    monitor = Monitor()
    names = ("update_ratio|a.weight", "stable_rank|a.weight")
    alarms = [alarm for step in range(first, first + 5) for alarm in monitor.add(Measured(step, names, (0.2, 8.0)))]
    assert bool(alarms) == raised
