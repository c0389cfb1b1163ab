"""Elements whose gradients a script sets to zero, and that an optimizer moves: real models."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from scripts import line_of
from torch import nn

import backprobe

TEXT = Path(__file__).read_text(encoding="utf-8")
KIND = "frozen-parameter-moves"
Zero = Callable[[nn.Embedding], None]


def zeroed_by(found: Any) -> int:
    """Return the line of the main site, which sets gradients to zero."""
    assert found.sites[0].role == "zeroed"
    return int(found.sites[0].site.line)


def nothing(words: nn.Embedding) -> None:
    """Leave the gradient as it is."""


def train(
    optimizer: Callable[[Any], torch.optim.Optimizer],
    zero: Zero = nothing,
    after: Zero = nothing,
    hook: Any = None,
    steps: int = 24,
    accumulated: bool = False,
) -> Any:
    """Train with a hook on the table's gradient, and with calls after each backward and after each step."""
    torch.manual_seed(0)
    words, out = nn.Embedding(12, 6), nn.Linear(6, 12)
    if hook is not None:
        register = words.weight.register_post_accumulate_grad_hook if accumulated else words.weight.register_hook
        register(hook)
    made = optimizer([*words.parameters(), *out.parameters()])
    with backprobe.trace() as trace:
        for _ in range(steps):
            loss = nn.functional.cross_entropy(out(words(torch.arange(12))), torch.arange(12))
            made.zero_grad()
            loss.backward()
            zero(words)
            made.step()
            after(words)
    return [one for one in trace.findings if one.kind == KIND]


adamw = partial(torch.optim.AdamW, lr=1e-2, weight_decay=0.1)
MASK = (torch.arange(12) >= 4).float()[:, None]


def by_index(words: nn.Embedding) -> None:
    words.weight.grad[:4] = 0  # <-- by_index


def by_data(words: nn.Embedding) -> None:
    words.weight.grad.data[:4].zero_()  # <-- by_data


def by_mask(words: nn.Embedding) -> None:
    words.weight.grad.mul_(MASK)  # <-- by_mask


def by_replacement(words: nn.Embedding) -> None:
    words.weight.grad = words.weight.grad * MASK  # <-- by_replacement


def in_hook(grad: torch.Tensor) -> torch.Tensor:
    grad = grad.clone()
    grad[:4] = 0  # <-- in_hook
    return grad


def times(mask: torch.Tensor, grad: torch.Tensor) -> torch.Tensor:
    return grad * mask  # <-- times


def when_accumulated(parameter: torch.Tensor) -> None:
    parameter.grad[:4] = 0  # type: ignore[index]  # <-- when_accumulated


@pytest.mark.parametrize("zero", [by_index, by_data, by_mask, by_replacement])
def test_a_line_after_the_backward(zero: Zero) -> None:
    (found,) = train(adamw, zero)
    assert zeroed_by(found) == line_of(TEXT, f"<-- {zero.__name__}")
    assert "rows 0 to 3 of" in found.title and "by weight decay" in found.title
    assert found.confidence == "certain"


@pytest.mark.parametrize(
    ("hook", "accumulated"), [(in_hook, False), (partial(times, MASK), False), (when_accumulated, True)]
)
def test_a_hook(hook: Any, accumulated: bool) -> None:
    (found,) = train(adamw, hook=hook, accumulated=accumulated)
    name = getattr(hook, "__name__", "times")
    assert zeroed_by(found) == line_of(TEXT, f"<-- {name}")
    assert "a hook sets the gradient of rows 0 to 3" in found.title


def test_momentum_of_earlier_steps() -> None:
    done: list[int] = []

    def late(words: nn.Embedding) -> None:
        done.append(1)
        if len(done) > 8:
            by_index(words)

    (found,) = train(partial(torch.optim.Adam, lr=1e-2), late)
    assert "by momentum" in found.title
    assert found.step >= 8


@pytest.mark.parametrize("optimizer", [partial(torch.optim.SGD, lr=0.1), partial(torch.optim.Adam, lr=1e-2)])
def test_elements_that_do_not_move(optimizer: Any) -> None:
    assert train(optimizer, by_index) == []
    assert train(optimizer, hook=in_hook) == []


def test_weights_that_are_put_back() -> None:
    kept: list[torch.Tensor] = []

    def keep(words: nn.Embedding) -> None:
        kept[:] = kept or [words.weight.detach()[:4].clone()]
        by_index(words)

    def put_back(words: nn.Embedding) -> None:
        with torch.no_grad():
            words.weight[:4] = kept[0]

    assert train(adamw, keep, put_back) == []


def test_gradients_of_which_some_are_dropped() -> None:
    def drop(words: nn.Embedding) -> None:
        words.weight.grad.mul_((torch.rand(12, 1) > 0.5).float())

    assert train(adamw, drop) == []
    assert train(adamw, hook=lambda grad: nn.functional.dropout(grad, 0.5)) == []


def test_zeros_that_the_loss_gives() -> None:
    torch.manual_seed(0)
    words = nn.Embedding(12, 6)
    words.weight.register_hook(lambda grad: grad / 2)
    optimizer = adamw(words.parameters())
    with backprobe.trace() as trace:
        for _ in range(24):
            optimizer.zero_grad()
            words(torch.arange(6)).square().sum().backward()
            nn.utils.clip_grad_norm_(words.parameters(), 0.1)
            optimizer.step()
    assert trace.findings == []


def test_hooks_are_as_before_after_each_call() -> None:
    order: list[str] = []
    weight = nn.Parameter(torch.ones(4, 2))
    weight.register_hook(lambda grad: order.append("first"))
    weight.register_hook(lambda grad: order.append("second"))
    other = nn.Parameter(torch.ones(4))
    other.register_post_accumulate_grad_hook(lambda p: order.append("third"))
    optimizer = torch.optim.SGD([weight, other], lr=0.1)
    with backprobe.trace():
        for _ in range(3):
            (weight.sum() + other.sum()).backward()
            optimizer.step()
            assert len(weight._backward_hooks) == 2 and not other._backward_hooks  # type: ignore[arg-type]
    assert [order.count(one) for one in ("first", "second", "third")] == [3, 3, 3]
    assert [one for one in order if one != "third"] == ["first", "second"] * 3


def test_a_line_beside_clipping() -> None:
    def clipped(words: nn.Embedding) -> None:
        nn.utils.clip_grad_norm_(words.parameters(), 0.5)
        by_index(words)
        nn.utils.clip_grad_norm_(words.parameters(), 0.2)

    (found,) = train(adamw, clipped)
    assert [(one.role, one.site.line) for one in found.sites if one.role == "zeroed"] == [
        ("zeroed", line_of(TEXT, "<-- by_index"))
    ]


def test_two_optimizers_after_one_backward() -> None:
    torch.manual_seed(0)
    words, out = nn.Embedding(12, 6), nn.Linear(6, 12)
    optimizers = [torch.optim.SGD(out.parameters(), lr=0.1), adamw(words.parameters())]
    with backprobe.trace() as trace:
        for _ in range(24):
            loss = nn.functional.cross_entropy(out(words(torch.arange(12))), torch.arange(12))
            for one in optimizers:
                one.zero_grad()
            loss.backward()
            by_index(words)
            for one in optimizers:
                one.step()
    assert [one.kind for one in trace.findings] == [KIND]


def test_a_closure() -> None:
    torch.manual_seed(0)
    words, out = nn.Embedding(12, 6), nn.Linear(6, 12)
    optimizer = adamw([*words.parameters(), *out.parameters()])

    def closure() -> torch.Tensor:
        loss = nn.functional.cross_entropy(out(words(torch.arange(12))), torch.arange(12))
        optimizer.zero_grad()
        loss.backward()
        by_index(words)
        return loss

    with backprobe.trace() as trace:
        for _ in range(24):
            optimizer.step(closure)
    (found,) = trace.findings
    assert zeroed_by(found) == line_of(TEXT, "<-- by_index")


class Rows:
    """An object whose method is a hook."""

    def __init__(self, mask: torch.Tensor) -> None:
        self.mask = mask

    def masked(self, grad: torch.Tensor) -> torch.Tensor:
        return grad * self.mask  # <-- attribute


def masked_around(mask: torch.Tensor, other: torch.Tensor) -> Any:
    return lambda grad: grad * mask  # <-- closure


def unmasked(mask: torch.Tensor) -> Any:
    def hook(grad: torch.Tensor) -> torch.Tensor:
        assert mask.dim()
        return grad * 1.0

    return hook


def train_some_rows(hook: Any, optimizer: Callable[[Any], torch.optim.Optimizer]) -> Any:
    """Train rows 4 to 11 of a table: the others have no gradient, with and without a mask."""
    torch.manual_seed(0)
    words, out = nn.Embedding(12, 6), nn.Linear(6, 12)
    words.weight.register_hook(hook)
    made = optimizer([*words.parameters(), *out.parameters()])
    ids = torch.arange(4, 12)
    with backprobe.trace() as trace:
        for _ in range(24):
            made.zero_grad()
            nn.functional.cross_entropy(out(words(ids)), ids).backward()
            made.step()
    return [one for one in trace.findings if one.kind == KIND]


@pytest.mark.parametrize(
    ("hook", "line"), [(masked_around(MASK, torch.ones(12, 1)), "closure"), (Rows(MASK).masked, "attribute")]
)
def test_rows_of_a_mask_that_have_no_gradient(hook: Any, line: str) -> None:
    (found,) = train_some_rows(hook, adamw)
    assert zeroed_by(found) == line_of(TEXT, f"# <-- {line}")
    assert (found.confidence, found.parameters) == ("likely", ("words.weight",))
    assert "rows 0 to 3 of words.weight" in found.title and "weight decay" in found.title


def test_rows_without_a_gradient_and_without_a_mask_are_not_frozen() -> None:
    assert train_some_rows(unmasked(MASK), adamw) == []
    assert train_some_rows(lambda grad: grad * torch.ones(12, 1), adamw) == []
    assert train_some_rows(masked_around(torch.ones(12, 1), MASK), adamw) == []
    plain = partial(torch.optim.SGD, lr=0.1)
    assert train_some_rows(masked_around(MASK, MASK), plain) == []  # nothing moves them
