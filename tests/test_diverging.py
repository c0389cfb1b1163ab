"""Which module of two models of one structure is named as the first that differs."""

from __future__ import annotations

from typing import Any

import torch

from backprobe.observe.trackers.divergence import _first, _state


def row(path: str, value: torch.Tensor, state: tuple = (), **plain: Any) -> tuple[Any, ...]:
    return path, "Module", [value], plain, [], state


def test_a_module_that_is_the_same_was_given_something_else() -> None:
    one, other = torch.ones(4), torch.full((4,), 2.0)
    weights, around = ((1.0, 2.0),), row("attn", one, order=1)
    found = _first([row("attn.o", one, weights), around], [row("attn.o", other, weights), row("attn", other, order=2)])
    assert found is not None
    assert (found.module, found.inside, found.attributes) == ("attn", "attn.o", ("order: 1 and 2",))
    # Other weights, another setting, or none that could be compared: it is that one.
    for its in (row("attn.o", other, ((1.0, 3.0),)), row("attn.o", other, weights, bias=True), row("attn.o", other)):
        found = _first([row("attn.o", one, weights), around], [its, row("attn", other)])
        assert found is not None and (found.module, found.inside) == ("attn.o", "")


def test_a_weight_that_is_not_transposed_is_another() -> None:
    one, other = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)
    with torch.no_grad():
        other.weight.copy_(one.weight)
        other.bias.copy_(one.bias)
    assert _state(one) == _state(other)
    with torch.no_grad():
        other.weight.copy_(one.weight.t())
    assert _state(one) != _state(other)


def test_few_digits_are_lost_in_sums() -> None:
    """Over 384 terms bfloat16 may be wrong by 8 %, over 4 by 1 %."""
    for terms, far in ((384, False), (4, True)):
        x = torch.ones(2, terms, dtype=torch.bfloat16)
        found = _first([row("norm", x)], [row("norm", x * 1.05)])
        assert (found is not None) is far
    x = torch.ones(2, 384)
    assert _first([row("norm", x)], [row("norm", x * 1.05)]) is not None
