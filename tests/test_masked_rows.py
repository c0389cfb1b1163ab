"""A fully masked row of scores, from any operation: located at the softmax, at every level and step."""

from __future__ import annotations

import inspect
from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import backprobe

INF = float("inf")
ALL_COLUMNS = torch.arange(4)


def masked_fill(scores: torch.Tensor) -> torch.Tensor:
    return scores.masked_fill(torch.tensor([[True], [False], [False]]), -INF)


def masked_fill_in_place(scores: torch.Tensor) -> torch.Tensor:
    return scores.clone().masked_fill_(torch.tensor([[True], [False], [False]]), -INF)


def index_fill(scores: torch.Tensor) -> torch.Tensor:
    return scores.index_fill(0, torch.tensor([1]), -INF)


def padded(scores: torch.Tensor) -> torch.Tensor:
    return F.pad(scores[1:], (0, 0, 1, 0), value=-INF)


def scattered(scores: torch.Tensor) -> torch.Tensor:
    return scores.scatter(1, ALL_COLUMNS.expand(1, 4), -INF)


def where(scores: torch.Tensor) -> torch.Tensor:
    return torch.where(torch.tensor([[True], [False], [True]]), scores, -INF)


def index_put(scores: torch.Tensor) -> torch.Tensor:
    return scores.index_put((torch.tensor([2]),), torch.tensor(-INF))


def assigned(scores: torch.Tensor) -> torch.Tensor:
    scores = scores.clone()
    scores[1] = -INF
    return scores


def copied(scores: torch.Tensor) -> torch.Tensor:
    made = torch.full((3, 4), -INF)
    made[1:].copy_(scores[1:])
    return made


def triangle_above(scores: torch.Tensor) -> torch.Tensor:
    return scores + torch.full((3, 4), -INF).triu(0)


def triangle_below(scores: torch.Tensor) -> torch.Tensor:
    return scores[:, :3] + torch.full((3, 3), -INF).tril(0)


def one_row_of_many(scores: torch.Tensor) -> torch.Tensor:
    mask = torch.zeros(60, 4)
    mask[17] = -INF
    return scores.repeat(20, 1) + mask


MASKS = (
    *(masked_fill, masked_fill_in_place, index_fill, padded, scattered, where, index_put, assigned, copied),
    *(triangle_above, triangle_below, one_row_of_many),
)


def attend(scores: torch.Tensor) -> torch.Tensor:
    weights = F.softmax(scores, -1)  # CAUSE
    return weights.square().mean()


def train(mask: Callable[[torch.Tensor], torch.Tensor], fails_in: int) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    for step in range(fails_in + 2):
        optimizer.zero_grad()
        scores = model(torch.randn(3, 4))
        attend(mask(scores) if step == fails_in else scores).backward()
        optimizer.step()


@pytest.mark.parametrize("fails_in", [0, 2, 99])
@pytest.mark.parametrize(("level", "budget"), [("minimal", None), ("nodes", None), ("nodes", 0.05), ("full", None)])
@pytest.mark.parametrize("mask", MASKS, ids=lambda mask: mask.__name__)
def test_it_is_named_at_the_softmax(
    mask: Callable[[torch.Tensor], torch.Tensor], level: str, fails_in: int, budget: float | None
) -> None:
    lines, first = inspect.getsourcelines(attend)
    cause = first + next(i for i, line in enumerate(lines) if line.rstrip().endswith("# CAUSE"))
    with backprobe.trace(level=level, budget=budget) as trace:
        train(mask, fails_in)
    found = trace.findings[0]
    assert (found.kind, found.step) == ("nonfinite-forward", fails_in)
    assert found.sites[0].site.line == cause, str(found)
    assert "mask" in found.advice


def noise(scores: torch.Tensor) -> torch.Tensor:
    """A constant that is Inf by chance, in one of many elements."""
    constant = torch.zeros(3, 40)
    constant[1, 7] = INF
    return scores.repeat(1, 10) + constant  # CAUSE


def overflow(scores: torch.Tensor) -> torch.Tensor:
    return scores.half() + torch.full((3, 4), 6e4).half() + torch.full((3, 4), 6e4).half()  # CAUSE


@pytest.mark.parametrize(
    ("made", "level"), [(noise, "nodes"), (noise, "full"), (overflow, "nodes"), (overflow, "full")]
)
def test_an_inf_that_is_no_mask_is_named_where_it_was_made(
    made: Callable[[torch.Tensor], torch.Tensor], level: str
) -> None:
    lines, first = inspect.getsourcelines(made)
    cause = first + next(i for i, line in enumerate(lines) if line.rstrip().endswith("# CAUSE"))
    with backprobe.trace(level=level, budget=None) as trace:
        train(made, 20)
    sites = [site.site.line for site in trace.findings[0].sites]
    assert cause in sites, str(trace.findings[0])
