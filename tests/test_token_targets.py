"""Losses over tokens: targets that are the next tokens, and others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import backprobe
from backprobe.source.targets import shift_lines

CLASSES, LENGTH = 30, 14


class Model(nn.Module):
    """A decoder with one layer of attention."""

    def __init__(self, causal: bool = True) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(CLASSES, 16), nn.Embedding(LENGTH, 16)
        self.head, self.second, self.causal = nn.Linear(16, CLASSES), nn.Linear(16, CLASSES), causal

    def forward(self, ids: Any) -> Any:
        x = self.tokens(ids) + self.places(torch.arange(ids.shape[1])[None])
        heads = x[:, None]  # one head
        return F.scaled_dot_product_attention(heads, heads, heads, is_causal=self.causal)[:, 0]


Loss = Callable[[Model, Any], Any]


def found_in(loss: Loss, causal: bool = True, steps: int = 5) -> list[Any]:
    torch.manual_seed(0)
    model = Model(causal)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    with backprobe.trace(model) as trace:
        for _ in range(steps):
            optimizer.zero_grad()
            loss(model, torch.randint(CLASSES, (6, LENGTH))).backward()
            optimizer.step()
    return [one for one in trace.findings if one.kind == "targets-misaligned"]


def compared(scores: Any, targets: Any) -> Any:
    return F.cross_entropy(scores.flatten(0, 1), targets.flatten())


def padded(targets: Any, by: int) -> Any:
    return F.pad(targets[:, by:], (0, by), value=-100)


WRONG: dict[str, tuple[int, Loss]] = {
    "shifted twice": (2, lambda m, ids: compared(m.head(m(ids[:, :-1]))[:, :-1], ids[:, 1:][:, 1:])),
    "padded twice": (2, lambda m, ids: compared(m.head(m(ids)), padded(ids, 2))),
    "in two dimensions": (2, lambda m, ids: F.cross_entropy(m.head(m(ids)).transpose(1, 2), padded(ids, 2))),
    "shifted twice, in half": (2, lambda m, ids: compared(m.head(m(ids[:, :-1]))[:, :-1].double() / 2, ids[:, 2:])),
    "without the first, shifted twice": (2, lambda m, ids: compared(m.head(m(ids[:, :-2]))[:, 1:], ids[:, 3:])),
    "shifted by three": (3, lambda m, ids: compared(m.head(m(ids)), padded(ids, 3))),
    "shifted back": (-1, lambda m, ids: compared(m.head(m(ids)), ids.roll(1, 1))),
    "not shifted": (0, lambda m, ids: compared(m.head(m(ids)), ids)),
}


def of_pairs(m: Model, ids: Any) -> Any:
    """Each score is made from two tokens that follow each other: the model gives one position less than it got."""
    x = m.tokens(ids)
    return m.head(x[:, :-1] + x[:, 1:])


RIGHT: dict[str, Loss] = {
    "of pairs": lambda m, ids: compared(of_pairs(m, ids[:, :-1]), ids[:, 2:]),
    "without the first": lambda m, ids: compared(m.head(m(ids[:, :-1]))[:, 1:], ids[:, 2:]),
    "the next token": lambda m, ids: compared(m.head(m(ids))[:, :-1], ids[:, 1:]),
    "the next token, padded": lambda m, ids: compared(m.head(m(ids)), padded(ids, 1)),
    "two heads": lambda m, ids: compared(m.head(m(ids)), padded(ids, 1)) + compared(m.second(m(ids)), padded(ids, 2)),
    "equal tokens": lambda m, ids: compared(m.head(m(ids * 0 + 3))[:, :-1], (ids * 0 + 3)[:, 1:]),
    "other classes": lambda m, ids: compared(m.head(m(ids)), (ids * 7 + 3) % CLASSES),
    "few targets": lambda m, ids: compared(m.head(m(ids)), ids.masked_fill(torch.rand(ids.shape) > 0.1, -100)),
    "one class for a row": lambda m, ids: F.cross_entropy(m.head(m(ids)).mean(1), ids[:, 0]),
}


@pytest.mark.parametrize("name", WRONG)
def test_targets_at_another_offset(name: str) -> None:
    offset, loss = WRONG[name]
    (found,) = found_in(loss)
    assert (found.evidence["offset"], found.evidence["share"], found.confidence) == (offset, 1.0, "certain")


@pytest.mark.parametrize("name", RIGHT)
def test_targets_that_are_meant(name: str) -> None:
    assert found_in(RIGHT[name]) == []


def test_a_tagger_or_an_autoencoder_may_have_its_own_tokens_as_targets() -> None:
    assert found_in(WRONG["not shifted"][1], causal=False) == []
    assert len(found_in(WRONG["shifted twice"][1], causal=False)) == 1


def test_two_steps_are_too_few() -> None:
    assert found_in(WRONG["shifted twice"][1], steps=2) == []


def test_the_lines_that_shift(tmp_path) -> None:
    file = tmp_path / "data.py"
    file.write_text(
        "labels = ids[:, 1:]\n"
        "batch = dict(inputs=ids[:, :-1], labels=ids[..., 1:].contiguous())\n"
        "batch = {'ids': ids[1:], 'target': ids[1:]}\n"
        "shifted = torch.roll(ids, -1, 1)\n"
        "rest = words[1:]\n"
        "x = labels[:, 2:]\n"
    )
    assert [site.line for site in shift_lines([str(file)])] == [1, 2, 3, 4]
