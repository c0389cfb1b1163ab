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
