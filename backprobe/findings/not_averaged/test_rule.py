"""The rule on hand-written records."""

from __future__ import annotations

import pytest
from handmade import at, only, traced
from learning import sites_of_only

from backprobe import Trace
from backprobe.records import UndividedLoss

KIND = "accumulation-not-averaged"


def of(by: str) -> Trace:
    seen = UndividedLoss(by, "NllLossBackward0", 8, 1, 30, at(20), at(90), at(21) if by == "term" else None, at(5))
    return traced(seen=[seen])


#: What was to divide -> the sites of the finding.
SITES = {
    "transformers": [("cause", 20), ("failed", 90), ("given", 5)],
    "accelerate": [("cause", 90), ("made", 20), ("given", 5)],
    "term": [("cause", 20), ("term", 21), ("failed", 90)],
}
#: Kind -> a run that shows it, and the sites of the finding.
FIRES = {"accumulation-not-averaged": (of("transformers"), SITES["transformers"])}


@pytest.mark.parametrize("by", SITES)
def test_lines(by: str) -> None:
    assert sites_of_only(KIND, of(by)) == SITES[by]


@pytest.mark.parametrize(
    ("by", "title"),
    [
        (
            "transformers",
            "transformers adds up the gradients of 8 batches and leaves the division to the loss, which is a mean over "
            "one batch: gradients are 8 times too large",
        ),
        (
            "accelerate",
            "loss.backward() goes around accelerate, which would divide the loss by 8, the number of accumulated "
            "batches: gradients are 8 times too large",
        ),
        (
            "term",
            "the script divides a part of the loss by 8, the number of accumulated batches, and not this term: beside "
            "that part, its gradients are 8 times too large",
        ),
    ],
)
def test_what_it_says(by: str, title: str) -> None:
    found = only(of(by))
    assert (found.title, found.confidence, found.step) == (title, "likely", 1)
    assert found.evidence == {"by": by, "count": 8, "steps": 30}


def test_a_run_without_such_a_loss() -> None:
    assert not traced().findings
