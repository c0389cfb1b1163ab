"""The terms of a loss, read from its graph; the weights are held against autograd's own derivatives."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.distributions import Normal, kl_divergence
from torch.nn import functional as F

from backprobe.torch_internals.loss_terms import comparison_of, normal_divergence, terms_of

Tensor = torch.Tensor
#: Linear operations, as a script writes them.
LINEAR: list[Callable[[Tensor], Tensor]] = [
    lambda x: -x,
    lambda x: 3 * x,
    lambda x: x / 4,
    lambda x: 1 - x,
    lambda x: x + 2,
    lambda x: x.mean(-1) if x.dim() else x,
    lambda x: x.sum(0) if x.dim() else x,
    lambda x: x.mean(),
    lambda x: x.unsqueeze(0),
    lambda x: x.reshape(-1),
    lambda x: torch.add(x, x, alpha=0.5),
    lambda x: x * torch.tensor(0.25),
    lambda x: x.mean((0, -1)) if x.dim() > 1 else x,
    lambda x: x + torch.zeros(2, *x.shape, dtype=x.dtype),
    lambda x: torch.ones(3, *x.shape, dtype=x.dtype) - x,
    lambda x: torch.rsub(x, 1, alpha=3),
    lambda x: torch.rsub(x, 2 * x, alpha=3),
]


@settings(max_examples=80)
@given(first=st.lists(st.sampled_from(LINEAR), max_size=5), second=st.lists(st.sampled_from(LINEAR), max_size=5))
def test_weights_are_the_derivatives(first: list, second: list) -> None:
    """A term that a mean or sum reduces has one weight for all elements: that of any of them."""
    x = torch.randn(3, 4, requires_grad=True, dtype=torch.float64)
    one, other = x.exp(), x.tanh()
    a, b = one, other
    for step in first:
        a = step(a)
    for step in second:
        b = step(b)
    loss = a.sum() - 2 * b.mean()
    found = {term.node: term.weight for term in terms_of(loss.grad_fn)}
    for made, grad in zip((one, other), torch.autograd.grad(loss, (one, other)), strict=True):
        torch.testing.assert_close(torch.full_like(grad, found[made.grad_fn]), grad)


def test_a_term_that_broadcasts_has_the_weight_of_all_that_it_is_added_to() -> None:
    x = torch.randn(5, 4, requires_grad=True, dtype=torch.float64)
    each, one = x.exp(), x.tanh()
    loss = (each.sum(1) + 0.5 * one.mean()).mean()
    found = {term.node: term.weight for term in terms_of(loss.grad_fn)}
    for made, grad in zip((each, one), torch.autograd.grad(loss, (each, one)), strict=True):
        torch.testing.assert_close(torch.full_like(grad, found[made.grad_fn]), grad)


def test_a_sum_that_leaves_out_nan_and_a_part_of_a_result_are_terms() -> None:
    x = torch.randn(5, 4, requires_grad=True)
    for part in (x.exp().nansum(), x.exp()[0].sum(), x.exp().expand(3, 5, 4).sum()):
        assert [term.node.name() for term in terms_of(part.grad_fn)] != ["ExpBackward0"]


def test_a_product_with_a_tensor_is_a_term() -> None:
    x = torch.randn(3, requires_grad=True)
    product = x.exp() * torch.randn(3)
    (term,) = terms_of((2 * product.sum()).grad_fn)
    assert term.node is product.grad_fn and term.weight == 2.0


def test_a_loss_with_too_many_nodes_has_no_terms() -> None:
    loss = x = torch.zeros((), requires_grad=True)
    for _ in range(300):
        loss = loss + 1
    assert terms_of(loss.grad_fn) == [] and x.grad is None


def parts() -> tuple[Tensor, Tensor]:
    both = torch.randn(5, 8, requires_grad=True) * 1
    mean, logvar = both.chunk(2, 1)
    return mean, logvar


#: The divergence as people write it, from means and logarithms of variances.
FORMS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "sum": lambda m, v: -0.5 * torch.sum(1 + v - m.pow(2) - v.exp()),
    "per sample": lambda m, v: (-0.5 * (1 + v - m * m - v.exp()).sum(1)).mean(),
    "mean": lambda m, v: 0.5 * torch.mean(m**2 + v.exp() - 1.0 - v),
    "distributions": lambda m, v: kl_divergence(Normal(m, (v / 2).exp()), Normal(0.0, 1.0)).sum(-1).mean(),
    "prior as tensors": lambda m, v: (
        kl_divergence(Normal(m, (v / 2).exp()), Normal(torch.zeros_like(m), torch.ones_like(m))).sum(-1).mean()
    ),
}


@pytest.mark.parametrize("form", FORMS)
def test_the_divergence_of_normal_distributions(form: str) -> None:
    mean, logvar = parts()
    loss = F.mse_loss(torch.tanh(mean + logvar), torch.zeros(5, 4)) + 0.3 * FORMS[form](mean, logvar)
    terms = terms_of(loss.grad_fn)
    found = normal_divergence(terms)
    torch.testing.assert_close(found.means, mean)
    torch.testing.assert_close(found.variances, logvar.exp())
    assert math.isclose(found.weight, 0.3 / {"sum": 1, "mean": 20}.get(form, 5), rel_tol=1e-5)
    others = [comparison_of(term) for term in terms if term.node not in found.nodes]
    assert [one.op for one in others if one is not None] == ["mse_loss"]


@pytest.mark.parametrize(
    "loss",
    [
        lambda m, v: m.pow(2).mean() + v.exp().mean(),
        lambda m, v: m.pow(2).sum() + 0.1 * v.exp().sum() - v.sum(),
        lambda m, v: (m.pow(2) + v.exp() - v).clamp(min=1.0).sum(),
        lambda m, v: (m - torch.ones(5, 4)).pow(2).mean(),
    ],
)
def test_other_sums_are_no_divergence(loss: Callable[[Tensor, Tensor], Tensor]) -> None:
    assert normal_divergence(terms_of(loss(*parts()).grad_fn)) is None


@pytest.mark.parametrize("reduction, divisor", [("mean", 20), ("sum", 1), ("none", 5)])
def test_the_weight_of_an_element_of_a_comparison(reduction: str, divisor: int) -> None:
    x, y = torch.randn(5, 4, requires_grad=True), torch.randn(5, 4)
    loss = F.mse_loss(x.tanh(), y, reduction=reduction)
    loss = 2 * (loss.sum(1).mean() if reduction == "none" else loss)
    (term,) = terms_of(loss.grad_fn)
    assert comparison_of(term) == ("mse_loss", 20, pytest.approx(2 / divisor))
    (term,) = terms_of((x - y).pow(2).mean().grad_fn)
    assert comparison_of(term) == ("pow", 20, pytest.approx(1 / 20))
