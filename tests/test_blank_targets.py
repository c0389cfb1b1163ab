"""Targets of ctc_loss that are its blank, as rows that are padded and as one sequence."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import backprobe

ROWS = torch.tensor([[1, 2, 3, 1], [2, 1, 0, 0]])
LENGTHS = torch.tensor([4, 2])


def found_in(targets: Any, lengths: Any, blank: int = 0) -> list[Any]:
    torch.manual_seed(0)
    model = nn.Linear(6, 5)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with backprobe.trace(model) as trace:
        for _ in range(3):
            scores = model(torch.randn(12, 2, 6)).log_softmax(2)
            optimizer.zero_grad()
            F.ctc_loss(scores, targets, torch.tensor([12, 12]), lengths, blank).backward()
            optimizer.step()
    return [one for one in trace.findings if one.kind == "blank-in-targets"]


@pytest.mark.parametrize(
    ("targets", "lengths", "blank", "count"),
    [
        (ROWS, LENGTHS, 1, 9),
        (ROWS, torch.tensor([4, 3]), 0, 3),
        (torch.tensor([1, 2, 0, 2, 1]), torch.tensor([3, 2]), 0, 3),
    ],
)
def test_a_target_that_is_the_blank(targets: Any, lengths: Any, blank: int, count: int) -> None:
    (found,) = found_in(targets, lengths, blank)
    assert found.evidence == {"blank": blank, "count": count, "targets": 3 * int(lengths.sum()), "calls": 3}
    assert "F.ctc_loss" in found.sites[0].site.text and found.confidence == "certain"


def test_what_pads_a_row_is_no_target() -> None:
    assert found_in(ROWS, LENGTHS) == [] and found_in(ROWS, LENGTHS, blank=4) == []
    assert found_in(torch.tensor([1, 2, 3, 2, 1]), torch.tensor([3, 2])) == []
