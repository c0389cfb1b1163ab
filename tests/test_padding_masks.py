"""Padding masks that hide the tokens and leave the padding visible, in attention of torch and by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import backprobe

PAD, ROWS, LENGTH, WIDTH = 0, 6, 9, 8
LENGTHS = torch.tensor([3, 5, 9, 7, 4, 6])


class Model(nn.Module):
    """A classifier of sequences; `attend` is given itself, the ids and their embeddings, as rows of tokens."""

    def __init__(self, attend: Callable[..., torch.Tensor], padding: int | None = PAD) -> None:
        super().__init__()
        self.tokens, self.attend = nn.Embedding(20, WIDTH, padding_idx=padding), attend
        self.attention = nn.MultiheadAttention(WIDTH, 2, batch_first=True)
        layer = nn.TransformerEncoderLayer(WIDTH, 2, 16, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.positions, self.cls = nn.Parameter(torch.randn(LENGTH, WIDTH)), nn.Parameter(torch.randn(1, 1, WIDTH))
        self.out = nn.Linear(WIDTH, 3)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.out(self.attend(self, ids, self.tokens(ids) + self.positions)[:, 0])


def encoder(model: Model, mask: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    return model.encoder(x, src_key_padding_mask=~mask)


def multi_head(model: Model, mask: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    return model.attention(x, x, x, key_padding_mask=~mask, need_weights=False)[0]


def with_weights(model: Model, mask: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    return model.attention(x, x, x, key_padding_mask=~mask)[0]


def dot_product(model: Model, mask: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    return F.scaled_dot_product_attention(x[:, None], x[:, None], x[:, None], attn_mask=mask[:, None, None, :])[:, 0]


def added(model: Model, mask: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    bias = (1 - mask.float()) * -10_000.0
    return F.scaled_dot_product_attention(x, x, x, bias[:, None, :])


def by_hand(model: Model, mask: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    scores = (x @ x.transpose(1, 2)).masked_fill(~mask[:, None, :], float("-inf"))
    return scores.softmax(-1) @ x


def class_token(model: Model, mask: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    x = torch.cat([model.cls.expand(len(x), -1, -1), x], 1)
    mask = torch.cat([torch.ones(len(x), 1, dtype=torch.bool), mask], 1)
    return model.attention(x, x, x, key_padding_mask=~mask, need_weights=False)[0]


WAYS = {one.__name__: one for one in (encoder, multi_head, with_weights, dot_product, added, by_hand, class_token)}


def found_in(attend: Callable[..., torch.Tensor], padding: int | None = PAD, full_row: bool = False) -> list[Any]:
    torch.manual_seed(0)
    model = Model(attend, padding)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with backprobe.trace(model) as trace:
        for _ in range(3):
            ids = torch.randint(1, 20, (ROWS, LENGTH))
            ids[torch.arange(LENGTH) >= LENGTHS.clamp(max=LENGTH if full_row else LENGTH - 1)[:, None]] = PAD
            optimizer.zero_grad()
            F.cross_entropy(model(ids), ids[:, 0] % 3).backward()
            optimizer.step()
    return [one for one in trace.findings if one.kind == "mask-inverted"]


@pytest.mark.parametrize("way", WAYS)
def test_an_inverted_mask_is_found_with_the_line_that_makes_it(way: str) -> None:
    def attend(model: Model, ids: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        mask = ids.eq(PAD)
        return WAYS[way](model, mask, x)

    (found,) = found_in(attend)
    assert found.confidence == "certain" and found.evidence["rows"] == 3 * ROWS
    assert found.sites[0].role == "cause"
    assert "mask" in found.sites[0].site.text or "bias" in found.sites[0].site.text


@pytest.mark.parametrize("way", WAYS)
def test_a_mask_that_hides_the_padding_is_right(way: str) -> None:
    assert found_in(lambda model, ids, x: WAYS[way](model, ids.ne(PAD), x), full_row=True) == []


def test_a_mask_made_from_lengths() -> None:
    def attend(model: Model, ids: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        lengths = ids.ne(PAD).sum(1)
        hidden = torch.arange(LENGTH) < lengths[:, None]
        return model.encoder(x, src_key_padding_mask=hidden)

    (found,) = found_in(attend)
    assert [one.role for one in found.sites] == ["cause", "masked"]
    assert found.sites[0].site.text == "hidden = torch.arange(LENGTH) < lengths[:, None]"
    assert "src_key_padding_mask=hidden" in found.sites[1].site.text


def test_a_causal_mask_that_is_joined_with_the_padding() -> None:
    causal = torch.ones(LENGTH, LENGTH, dtype=torch.bool).tril()

    def attend(model: Model, ids: torch.Tensor, x: torch.Tensor, inverted: bool) -> torch.Tensor:
        visible = ids.eq(PAD) if inverted else ids.ne(PAD)
        return F.scaled_dot_product_attention(x, x, x, causal & visible[:, None, :])

    assert len(found_in(lambda *args: attend(*args, inverted=True))) == 1
    assert found_in(lambda *args: attend(*args, inverted=False)) == []


@pytest.mark.parametrize("inverted", [True, False])
def test_sequences_in_columns(inverted: bool) -> None:
    def attend(model: Model, ids: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        columns = ids.t()
        mask = (columns.eq(PAD) if inverted else columns.ne(PAD)).t()
        return multi_head(model, mask, model.tokens(columns).transpose(0, 1) + x * 0)

    assert len(found_in(attend)) == inverted


@pytest.mark.parametrize("inverted", [True, False])
def test_two_sequences_of_one_shape(inverted: bool) -> None:
    """A decoder reads a source and a target with masks of their own, which have the same shape."""

    def attend(model: Model, ids: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        source = ids.flip(0)
        memory, mask = model.tokens(source), source.ne(PAD) if inverted else source.eq(PAD)
        read = model.attention(x, memory, memory, key_padding_mask=mask)[0]
        return read + model.attention(x, x, x, key_padding_mask=ids.eq(PAD))[0]

    found = found_in(attend)
    assert len(found) == inverted
    assert not found or "memory, mask = " in found[0].sites[0].site.text


def test_other_masks_are_no_padding_masks() -> None:
    assert found_in(lambda model, ids, x: multi_head(model, ids.eq(PAD), x), padding=None) == []
    assert found_in(lambda model, ids, x: multi_head(model, torch.rand(ids.shape) < 0.8, x)) == []
    assert found_in(lambda model, ids, x: multi_head(model, ids.ne(PAD) & (torch.rand(ids.shape) < 0.9), x)) == []
    assert found_in(lambda model, ids, x: x.masked_fill(ids.eq(PAD)[..., None], 0.0).cumsum(1).flip(1)) == []
