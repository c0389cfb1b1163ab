"""Vanishing and exploding gradients: from layer to layer, over time steps, at one operation."""

from __future__ import annotations

import dataclasses

import pytest
from handmade import at, bad_root, call, kinds, leaf, only, parameter, roles, run, traced
from learning import DEAD, OFF, STEP, flat, lost, reached, sites_of_only

from backprobe import Trace
from backprobe.records import BackwardCall, RankSeen, RankWait


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


#: Kind -> a run that shows it; the sites of the finding.
FIRES = {
    "vanishing-gradient": (grown(8, 0.1), [("cause", 20), ("failed", 90)]),
    "exploding-gradient": (grown(8, 10.0), [("cause", 20), ("failed", 90)]),
}


@pytest.mark.parametrize("kind", FIRES)
def test_one_run_one_finding(kind: str) -> None:
    trace, sites = FIRES[kind]
    assert sites_of_only(kind, trace) == sites


BAD = call(run("SumBackward0", 1, op="sum", line=12), leaf("a.weight"), index=1, roots=bad_root())
STUCK = [RankSeen(0, 1, (RankWait("barrier", at(60), 50.0, 4.0, "raised"),))]


def test_invalid_gradients_have_no_findings_about_their_size() -> None:
    for calls, parameters in (((flat(),), DEAD), (stack(8, 0.1)[:1], stack(8, 0.1)[1])):
        assert kinds(traced(*calls, BAD, parameters=parameters)) == ["nonfinite-forward"]
        assert kinds(traced(*calls, parameters=parameters, seen=STUCK)) == ["rank-desync"]
        # An error that tells nothing of the gradients does not silence them.
        (first, second) = kinds(traced(*calls, parameters=parameters, seen=[OFF]))
        assert first == "grad-mode-disabled"
        assert second in ("zero-grad", "vanishing-gradient")


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
    assert kinds(grown(8, 0.1, *again[:2], calm)) == ["vanishing-gradient"]  # the rule does not read the fourth
    assert kinds(grown(8, 0.1, inside=3)) == []


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


# One operation


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


def test_what_to_do_depends_on_whether_the_operation_divides() -> None:
    parameters = reached("table.weight", "proj.weight", "proj.bias")
    assert "the operation divides by it" in only(traced(spiked(1e12), parameters=parameters)).advice
    product = call(
        run("AddBackward0", 1, 3, 4, op="add", line=12),
        run("ConvolutionBackward0", 2, op="conv2d", line=11, module="unit", gave=(1e12,)),
        leaf("table.weight", came=1e12),
        leaf("proj.weight"),
        leaf("proj.bias"),
    )
    assert only(traced(product, parameters=parameters)).advice.startswith("conv2d divides by nothing")


def test_an_explosion_that_begins_late_comes_after_a_reason_from_the_start() -> None:
    parameters = [*reached("table.weight", "proj.weight", "proj.bias"), *lost("b.weight", defined=at(4))]
    late = dataclasses.replace(spiked(1e12), index=9, step=9)
    assert kinds(traced(STEP, late, parameters=parameters)) == ["none-grad", "exploding-gradient"]
    first = dataclasses.replace(spiked(1e12), index=0, step=0)
    assert kinds(traced(first, parameters=parameters)) == ["exploding-gradient", "none-grad"]


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
    """The usual size is that of the first calls, even if most calls differ from it."""
    parameters = reached("table.weight")
    calls = [steady(step, 3.0 if step < 8 else 1e9) for step in range(40)]
    found = only(traced(*calls, parameters=parameters))
    assert (found.kind, found.step, roles(found)[0]) == ("exploding-gradient", 8, ("cause", 11))
    assert not kinds(traced(*(steady(step, 1e9) for step in range(40)), parameters=parameters))


# Bounds


def with_ratio(count: int, ratio: float, name: str = "") -> list[str]:
    """The kinds found for so many layers, or uses of one weight, between whose gradients there is this ratio."""
    norms = [ratio ** (i / (count - 1)) for i in range(count)]
    names = [name] * count if name else None
    parameters = reached(name) if name else stack(count, 1.0)[1]
    return kinds(traced(deep(norms, names), parameters=parameters))


@pytest.mark.parametrize(
    ("count", "ratio", "kind"),
    [
        (8, 0.9e-5, "vanishing-gradient"),
        (8, 1.1e-5, ""),
        (18, 0.49**17, "vanishing-gradient"),
        (19, 0.51**18, ""),  # each layer shrinks it by less
        (5, 1e-6, "vanishing-gradient"),
        (8, 1.1e4, "exploding-gradient"),
        (8, 0.9e4, ""),
        (24, 1.51**23, "exploding-gradient"),
        (25, 1.49**24, ""),
        (31, 1.1e5, "exploding-gradient"),  # each layer enlarges it by less, and there are many
        (31, 0.9e5, ""),
    ],
)
def test_how_far_a_gradient_has_to_grow_or_shrink(count: int, ratio: float, kind: str) -> None:
    assert with_ratio(count, ratio) == ([kind] if kind else [])


@pytest.mark.parametrize(("ratio", "kind"), [(0.9e-8, "vanishing-gradient"), (1.1e-8, "")])
def test_how_far_a_gradient_has_to_shrink_over_time(ratio: float, kind: str) -> None:
    assert with_ratio(12, ratio, "cell.weight") == ([kind] if kind else [])


@pytest.mark.parametrize(("usual", "earlier", "reported"), [(38, 6, True), (42, 6, False), (38, 5, False)])
def test_how_far_the_gradient_of_a_call_has_to_outgrow_earlier_ones(usual: float, earlier: int, reported: bool) -> None:
    short = [horizon(step, 10, usual ** (1 / 9)) for step in range(earlier)]
    after = [horizon(earlier + step, 10, usual ** (1 / 9)) for step in range(1, 6)]
    trace = traced(*short, horizon(earlier, 200, 4e4 ** (1 / 199)), *after, parameters=reached("controller.weight"))
    assert bool(kinds(trace)) == reported


def test_how_many_calls_at_the_end_have_to_show_a_trend() -> None:
    parameters = stack(8, 1.0)[1]
    calm = [dataclasses.replace(deep([1.0] * 8), index=i, step=i) for i in range(10)]
    last = [dataclasses.replace(stack(8, 0.1)[0], index=i, step=i) for i in range(10, 13)]
    assert kinds(traced(*calm, *last, parameters=parameters)) == ["vanishing-gradient"]
    assert kinds(traced(*calm, *last[:2], parameters=parameters)) == []


@pytest.mark.parametrize(("uses", "reported"), [(20, False), (21, True)])
def test_irregular_growth_over_time_is_averaged(uses: int, reported: bool) -> None:
    assert bool(kinds(traced(horizon(0, uses, 1.9), parameters=reached("controller.weight")))) == reported


def twice(factor: float) -> BackwardCall:
    """Two operations that multiply the gradient of one parameter, the second one by 25."""
    return call(
        run("AddBackward0", 1, 4, 5, op="add", line=12),
        run("DivBackward0", 2, op="div", line=11, gave=(factor,)),
        run("MulBackward0", 3, op="mul", line=10, came=(factor,), gave=(25 * factor,)),
        leaf("table.weight", came=25 * factor),
        leaf("proj.weight"),
        leaf("proj.bias"),
    )


@pytest.mark.parametrize(
    ("seen", "reported"), [(spiked(0.9e6), False), (spiked(1.1e6), True), (twice(0.9e5), False), (twice(1.1e5), True)]
)
def test_how_far_one_operation_has_to_multiply_a_gradient(seen: BackwardCall, reported: bool) -> None:
    parameters = reached("table.weight", "proj.weight", "proj.bias")
    assert bool(kinds(traced(seen, parameters=parameters))) == reported


@pytest.mark.parametrize(
    ("calls", "factor", "reported"), [(8, 0.9e5, False), (8, 1.1e5, True), (4, 1e9, False), (5, 1e9, True)]
)
def test_how_far_a_call_has_to_be_from_others(calls: int, factor: float, reported: bool) -> None:
    trace = traced(
        *(steady(i, 3.0) for i in range(calls)), steady(calls, 3 * factor), parameters=reached("table.weight")
    )
    assert bool(kinds(trace)) == reported


@pytest.mark.parametrize(("inside", "module"), [(8, ""), (9, "body")])
def test_how_many_layers_have_to_be_in_the_named_module(inside: int, module: str) -> None:
    """Of the ten layers whose gradient is less than a thousandth of the last one's."""
    names = [f"body.{i}.weight" if i < 4 + inside else f"stem{i}.weight" for i in range(14)]
    trace = traced(deep([0.1**i for i in range(14)], names), parameters=[parameter(name) for name in names])
    assert only(trace).module == module
