"""Embeddings whose padding row is looked up."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from backprobe.observe.session import Session, Settings
from backprobe.observe.sinks.memory import Collector


def found(low: int, shape: tuple[int, ...], padding: int | None = 0) -> Any:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(9, 4, padding_idx=padding), nn.Linear(4, 1))
    collector = Collector()
    session = Session(collector, Settings(budget=None))
    session.start()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(8):
        loss = model(torch.randint(low, 9, shape)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    session.stop()
    assert session.error is None, repr(session.error)
    return collector.trace(session).findings


def test_a_padding_row_among_single_ids() -> None:
    (one,) = found(0, (64,))
    assert (one.kind, one.severity, one.parameters) == ("part-never-learns", "info", ("0.weight",))
    assert "padding_idx" in one.sites[0].site.text and one.evidence["row"] == 0


def test_lookups_that_are_as_they_should_be() -> None:
    assert found(1, (64,)) == []
    assert found(0, (8, 8)) == []  # sequences
    assert found(0, (64,), padding=None) == []
