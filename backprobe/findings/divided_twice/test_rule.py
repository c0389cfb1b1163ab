"""The rule on hand-written records."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from handmade import at, call, leaf, only, run
from learning import sites_of_only

from backprobe import Trace
from backprobe.records import AccumulationNames, BackwardCall, Facts, GradStat, NodeRun, Site, Step
from backprobe.traces import TracedStep

ACCELERATE = Site("/env/site-packages/accelerate/accelerator.py", 2851, "backward", "loss = loss / self.steps")
BY_NAME = "loss = loss / accumulation"


def scalar(name: str, *edges: int | None, by: float = 1.0, line: int = 20, text: str = "", **more: Any) -> NodeRun:
    """A node of a number, which gives its gradient times `by`, at a line with this `text`."""
    made = run(name, *edges, line=line, **more)
    gave = (GradStat((), "float32", by), *(None for _ in edges[1:]))
    site = replace(at(line), text=text)
    return replace(
        made, node=replace(made.node, site=site), grad_outputs=(GradStat((), "float32", 1.0),), grad_inputs=gave
    )


def of_library(made: NodeRun) -> NodeRun:
    return replace(made, node=replace(made.node, library=(ACCELERATE,)))


def step_of(*nodes: NodeRun, calls: int = 4, steps: int = 2, names: tuple[str, ...] = ()) -> Trace:
    """A run in which `calls` backward calls with this graph make a step."""
    given = []
    for step in range(steps):
        mine = [calls_of(nodes, step * calls + i, step) for i in range(calls)]
        given.append(TracedStep(Step(step, 0.1, 1.0, tuple(one.index for one in mine), calls=calls), mine))
    return Trace(given, Facts((), (), seen=(AccumulationNames(names),)))


def calls_of(nodes: tuple[NodeRun, ...], index: int, step: int) -> BackwardCall:
    one = call(*nodes, index=index, step=step)
    placed = [
        replace(made, node=replace(made.node, library=given.node.library, site=given.node.site))
        for made, given in zip(one.nodes, nodes, strict=True)
    ]
    return replace(one, nodes=placed)


def twice(text: str = BY_NAME, by: float = 0.25, loss: NodeRun | None = None) -> tuple[NodeRun, ...]:
    library = of_library(scalar("DivBackward0", 1, None, by=0.25, line=90))
    script = scalar("DivBackward0", 2, None, by=by, text=text)
    return library, script, loss or run("MseLossBackward0", 3, line=19), leaf("weight")


#: Kind -> a run that shows it, and the sites of the finding.
FIRES = {
    "loss-divided-twice": (step_of(*twice()), [("cause", 20), ("backward", 90)]),
}


@pytest.mark.parametrize("kind", FIRES)
def test_one_run_one_finding(kind: str) -> None:
    trace, sites = FIRES[kind]
    assert sites_of_only(kind, trace) == sites


def test_what_it_says() -> None:
    found = only(step_of(*twice()))
    assert found.title == (
        "accelerate divides the loss by 4, the number of accumulated batches, and so does the script: the gradients of "
        "each step are too small by a factor of 4"
    )
    assert (found.confidence, found.evidence["library"], found.evidence["count"]) == ("likely", "accelerate", 4)


@pytest.mark.parametrize(
    "text",
    ["accelerator.backward(loss / 4)", "loss /= 4.0", "return loss.div(self.args.gradient_accumulation_steps)"],
)
def test_how_a_line_divides(text: str) -> None:
    assert only(step_of(*twice(text))).sites[0].site.text == text


@pytest.mark.parametrize("text", ["accelerator.backward(loss / GATHER)", "loss /= self.config.GATHER"])
def test_a_name_that_the_script_gives_to_the_library(text: str) -> None:
    assert only(step_of(*twice(text), names=("GATHER",))).sites[0].site.text == text
    assert not step_of(*twice(text), names=("OTHER",)).findings
    assert not step_of(*twice(text, loss=run("SumBackward0", 3)), names=("GATHER",)).findings


def test_factors_around_it() -> None:
    """A scaler multiplies the loss, a cast and a weight are between the divisions and the loss."""
    nodes = (
        of_library(scalar("MulBackward0", 1, None, by=1024.0)),
        of_library(scalar("DivBackward0", 2, None, by=0.25, line=90)),
        scalar("ToCopyBackward0", 3),
        scalar("DivBackward0", 4, None, by=0.2505, text=BY_NAME),
        scalar("MulBackward0", 5, None, by=0.5),
        run("MeanBackward0", 6),
        leaf("weight"),
    )
    assert only(step_of(*nodes)).kind == "loss-divided-twice"


FOUR_TERMS = (run("AddBackward0", 3, 4), run("AddBackward0", 5, 6), run("AddBackward0", 7, 7))


@pytest.mark.parametrize(
    "trace",
    [
        step_of(*twice()[1:2], run("MseLossBackward0", 3), run("MseLossBackward0", 3), leaf("weight")),
        step_of(*twice(), calls=3),
        step_of(*twice(by=0.5)),
        step_of(*twice("loss = loss / len(batch)")),
        step_of(*twice("loss = half / 4", loss=run("DotBackward0", 3))),
        step_of(*twice(loss=run("SumBackward0", 3))),
        step_of(*twice("loss = F.mse_loss(x, y, reduction='sum') / 4")),
        step_of(*twice()[:2], *FOUR_TERMS, run("MeanBackward0", 8), run("MeanBackward0", 8), leaf("weight")),
    ],
    ids=["once", "other count", "other divisor", "other name", "no mean", "sum", "summed loss", "mean of terms"],
)
def test_losses_that_are_divided_as_they_should_be(trace: Trace) -> None:
    assert not trace.findings


def test_a_loss_that_is_multiplied_again() -> None:
    library, script, loss, weight = twice()
    again = scalar("MulBackward0", 3, None, by=4.0)
    assert not step_of(library, script, again, run("MeanBackward0", 4), weight).findings
    assert loss.name == "MseLossBackward0"


def test_a_half_of_two() -> None:
    library = of_library(scalar("DivBackward0", 1, None, by=0.5, line=90))
    half = scalar("DivBackward0", 2, None, by=0.5, text="loss = square.mean() / 2")
    assert not step_of(library, half, run("MeanBackward0", 3), leaf("weight"), calls=2).findings
    named = scalar("DivBackward0", 2, None, by=0.5, text="loss = square.mean() / ACCUM")
    assert only(step_of(library, named, run("MeanBackward0", 3), leaf("weight"), calls=2)).evidence["count"] == 2


@pytest.mark.parametrize(("factor", "reported"), [(0.25 * 1.009, True), (0.25 * 1.011, False)])
def test_how_exactly_a_factor_has_to_be_the_number_of_batches(factor: float, reported: bool) -> None:
    assert bool(step_of(*twice(by=factor)).findings) == reported
