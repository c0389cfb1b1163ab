"""Norms against exact arithmetic, over all magnitudes, in every dtype, layout and way to measure."""

from __future__ import annotations

import math
import warnings
from fractions import Fraction

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import backprobe
from backprobe.observe.schedule import samples
from backprobe.observe.trackers.tensors import seen
from backprobe.records import FreeParameter, together
from backprobe.torch_internals import norms
from backprobe.torch_internals.measure import BATCH, Norms, joint_norm
from backprobe.user_tools.activations.table import row_of

DTYPES = {
    torch.float32: (45, 38, 2e-6),
    torch.float64: (323, 308, 1e-12),
    torch.float16: (8, 4, 2e-6),
    torch.bfloat16: (40, 38, 2e-6),
    torch.complex64: (45, 38, 2e-6),
    torch.complex128: (323, 308, 1e-12),
}
PARTS = {torch.complex64: torch.float32, torch.complex128: torch.float64}


def truth(tensor) -> float:
    """By whole numbers: no rounding but the last one. A norm that a float cannot hold is the greatest float."""
    flat = (torch.view_as_real(tensor) if tensor.is_complex() else tensor).double().reshape(-1).tolist()
    if any(math.isnan(v) for v in flat):
        return math.nan
    if any(math.isinf(v) for v in flat):
        return math.inf
    square = sum(Fraction(v) ** 2 for v in flat)
    scale = 1 << 2400
    root = Fraction(math.isqrt(int(square * scale * scale)), scale)
    return float(min(root, Fraction(math.nextafter(math.inf, 0))))


def assert_agrees(found: float, tensor, rel: float) -> None:
    true = truth(tensor)
    assert math.isnan(found) == math.isnan(true), (found, true)
    assert math.isinf(found) == math.isinf(true), (found, true)
    # No element differs from zero, and so is the norm; else it is not. What is subnormal has fewer digits.
    assert (found == 0.0) == (not bool(tensor.any())), (found, true)
    if math.isfinite(true):
        assert found == pytest.approx(true, rel=rel, abs=1e-322), tensor


@st.composite
def tensors(draw, dtypes=tuple(DTYPES)):
    """A few elements of all magnitudes that the dtype has; NaN and infinities among them now and then."""
    dtype = draw(st.sampled_from(dtypes))
    low, high, _ = DTYPES[dtype]
    number = st.builds(lambda m, e: m * 10.0**e, st.floats(-9.9, 9.9), st.integers(-low, high))
    element = st.one_of(st.just(0.0), number, *[st.sampled_from([math.nan, math.inf, -math.inf])] * draw(st.booleans()))
    size = draw(st.integers(0, 6))
    parts = PARTS.get(dtype)
    values = draw(st.lists(element, min_size=size * (2 if parts else 1), max_size=size * (2 if parts else 1)))
    if parts:
        return torch.view_as_complex(torch.tensor(values, dtype=torch.float64).reshape(-1, 2).to(parts))
    return torch.tensor(values, dtype=torch.float64).to(dtype)


@given(tensors())
def test_a_norm_matches_the_elements(tensor):
    rel = DTYPES[tensor.dtype][2]
    assert_agrees(norms.norm(tensor), tensor, rel)
    assert_agrees(float(norms.device_norm(tensor)), tensor, rel)
    assert_agrees(joint_norm([tensor]), tensor, rel)
    assert_agrees(samples.norms(["w"], [tensor], samples.WEIGHT)[0][0], tensor, rel)


@given(st.lists(tensors(), min_size=1, max_size=5), st.booleans())
def test_however_it_is_measured(given_tensors, brief):
    """At once, in a batch of its shape, in one that was known before: the same norms, and what is bad told apart."""
    found = Norms(brief=brief)
    slots = [found.now(t) for t in given_tensors] + [found.take(t) for t in given_tensors for _ in range(3)]
    all_of_them = given_tensors + [t for t in given_tensors for _ in range(3)]
    for t in given_tensors:
        known = [len(found.values), len(found.values) + 1]
        found.values += [0.0, 0.0]
        found.batch([*known], [t, t])
        slots, all_of_them = [*slots, *known], [*all_of_them, t, t]
    found.flush()
    for slot, tensor in zip(slots, all_of_them, strict=True):
        assert_agrees(found.values[slot], tensor, DTYPES[tensor.dtype][2])
        true, bad = truth(tensor), found.bad.get(slot)
        assert (bad is None) == math.isfinite(true) and not found.unmeasured
        if bad is not None and brief:
            assert (bad.nan, bad.inf) == (int(math.isnan(true)), int(math.isinf(true)))
        elif bad is not None:
            assert bad.nan == int(tensor.isnan().sum()) and bad.count == int((~tensor.isfinite()).sum())


@given(st.lists(tensors(), min_size=1, max_size=5))
def test_where_the_tensor_is_gone_when_its_norm_is_read(given_tensors):
    """As on an accelerator: the same, or not measured."""
    found = Norms()
    found.values = [0.0] * len(given_tensors)
    for slot, tensor in enumerate(given_tensors):
        if tensor.numel():
            found.later(slot, tensor)
    found.flush()
    for slot, tensor in enumerate(given_tensors):
        if slot in found.unmeasured:  # the squares are beyond a double, and there is nothing wider
            assert tensor.dtype in (torch.float64, torch.complex128) and math.isfinite(truth(tensor))
            assert tensor.any() and slot not in found.bad
            continue
        assert_agrees(found.values[slot], tensor, 2e-6)
        assert (slot in found.bad) == (not math.isfinite(truth(tensor)))


@pytest.mark.parametrize("value", [0.0, 8e-24, 1e-3, 8e21, math.inf, math.nan])
def test_a_large_one_that_is_gone(value, monkeypatch):
    monkeypatch.setattr("backprobe.torch_internals.measure.MAX_DOUBLE_ELEMENTS", 4)
    found, tensor = Norms(), torch.full((10,), value)
    found.values = [0.0]
    found.later(0, tensor)
    found.flush()
    if value in (8e-24, 8e21):
        assert found.unmeasured == {0} and not found.bad
    else:
        assert not found.unmeasured and bool(found.bad) == (not math.isfinite(value))
        assert_agrees(found.values[0], tensor, 2e-6)


@given(tensors(dtypes=(torch.float32, torch.float64, torch.bfloat16, torch.float16)))
def test_sums_detect_nonfinite_values_and_nothing_else(tensor):
    for device in (False, True):
        found = Norms(sums=True)
        found.values = [0.0] * (1 + BATCH)
        if not device:
            found.into(0, tensor)
            found.batch(list(range(1, 1 + BATCH)), [tensor] * BATCH)
        elif tensor.numel():
            found.later(0, tensor)
        found.flush()
        bad = not bool(tensor.isfinite().all())
        assert set(found.bad) == (set(range(1 if device else 1 + BATCH)) if bad else set())


LONG_SUM_DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.complex64]


@pytest.mark.parametrize(
    ("dtype", "size"),
    [(torch.float16, 1 / 64), *[(dtype, size) for dtype in LONG_SUM_DTYPES for size in (1 / 64, 1e-30, 1e30)]],
)
def test_long_sums_keep_their_digits(dtype, size):
    """Single precision loses a percent over 16 million elements added one by one; laid out in any way."""
    base = torch.full((2048, 1030), size, dtype=dtype)
    each = float(base[0, 0].abs())
    for tensor in (
        base,
        base.t(),
        base[:, ::2],
        base.reshape(4, 512, 1030).permute(1, 2, 0),
        base[:1].expand(4096, 1030),
        base[0, 0].expand(3000, 1000),
    ):
        assert norms.norm(tensor) == pytest.approx(each * math.sqrt(tensor.numel()), rel=3e-6)
        found = Norms()
        found.now(tensor)
        assert found.values[0] == pytest.approx(each * math.sqrt(tensor.numel()), rel=3e-6)


def test_other_layouts_and_dtypes():
    dense = torch.tensor([[0.0, 3e-30], [4e-30, 0.0]])
    at, values = torch.tensor([[0, 0, 1], [1, 1, 0]]), torch.tensor([1e-30, 2e-30, 4e-30])
    twice = torch.sparse_coo_tensor(at, values, (2, 2), check_invariants=True)
    found = Norms()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # once a process: that sparse rows are in beta
        rows = dense.to_sparse_csr()
    for tensor in (dense, dense.to_sparse(), twice, rows, (dense * 1e30).to(torch.float8_e4m3fn)):
        found.now(tensor)
    assert found.values == pytest.approx([5e-30] * 4 + [5.0], rel=1e-6) and not found.unmeasured
    assert norms.norm(torch.tensor([3, 4])) == 5.0 and norms.norm(torch.tensor([True, False])) == 1.0
    assert norms.norm(torch.tensor([3e-30 + 4e-30j]).conj()) == pytest.approx(5e-30)
    found.now(torch.ones(3, device="meta"))
    found.flush()
    assert found.unmeasured == {5}


@given(st.lists(st.one_of(st.floats(0, 1.7e308), st.sampled_from([math.inf, math.nan])), max_size=6))
def test_a_whole_from_its_parts(parts):
    whole = together(parts)
    if any(math.isnan(p) for p in parts):
        assert math.isnan(whole)
    else:
        assert math.isinf(whole) == (math.inf in parts)
        assert math.isinf(whole) or whole >= max(parts, default=0.0)
        assert (whole == 0.0) == (not any(parts))


@pytest.mark.parametrize("factor", [8e-24, 8e21, 1e-38])
@pytest.mark.parametrize("width", [3, 200])
def test_tiny_and_huge_norms_are_neither_zero_nor_infinite(factor, width):
    """In the records of every way to look: the first steps, the batches after them, the optimizer's."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(width, width, bias=False), nn.Identity(), nn.Linear(width, width, bias=False))
    true_norms: list[dict[str, float]] = []
    optimizer = torch.optim.SGD(model.parameters(), 0.0)
    with backprobe.trace(model) as trace:
        for _ in range(6):
            optimizer.zero_grad()
            (model(torch.ones(2, width)) * factor).sum().backward()
            true_norms.append({n: float(p.grad.double().norm()) for n, p in model.named_parameters()})
            optimizer.step()
    assert trace.findings == []
    for step, true in zip(trace.steps, true_norms, strict=True):
        nodes = step.backwards[0].nodes
        found = {r.parameter: r.grad_outputs[0].norm for r in nodes if r.parameter}
        assert found == pytest.approx(true, rel=3e-6)
        assert not any(g.norm == 0 or math.isinf(g.norm) for r in nodes for g in r.grad_outputs)
    assert {n: s.grad for n, s in trace.steps[0].parameters.items()} == pytest.approx(true_norms[0], rel=3e-6)


def test_layers_with_gradients_below_single_precision_have_exact_numbers():
    """Ten layers that each divide by a thousand: the first ones get 1e-30 and less, which is not zero."""
    torch.manual_seed(0)
    model = nn.Sequential(*[m for _ in range(12) for m in (nn.Linear(8, 8), nn.Tanh())])
    with torch.no_grad():
        for p in model.parameters():
            p.mul_(1e-3)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with backprobe.trace(model) as trace:
        for _ in range(5):
            optimizer.zero_grad()
            model(torch.randn(4, 8)).sum().backward()
            optimizer.step()
    (finding,) = trace.findings
    assert finding.kind == "vanishing-gradient"
    assert all(0.0 < norm < math.inf for norm in finding.evidence["norms"].values())
    assert min(finding.evidence["norms"].values()) < 1e-30


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("factor", [1e-37, 1.0, 1e36])
def test_the_wording_for_captured_tensors_and_their_values(dtype, factor):
    """Deviations are norms too. Histograms of doubles beyond single precision count no infinities and no zeros."""
    values = [1.0, -2.0, 4.0, 8.0]
    tensor = (torch.tensor(values, dtype=torch.float64) * factor).to(dtype)
    row = row_of("x", "", tensor)
    true = [Fraction(v) for v in tensor.double().tolist()]
    mean = sum(true) / len(true)
    deviation = math.sqrt(sum(((v - mean) / Fraction(factor)) ** 2 for v in true) / len(true)) * factor
    assert row.mean == pytest.approx(float(mean), rel=1e-6) and row.deviation == pytest.approx(deviation, rel=1e-6)
    far = (tensor.double() * (1e200 if factor > 1 else 1e-200)) if dtype is torch.float64 else tensor
    for looked_at in (tensor, far):
        found = seen("x", "weight", "", 0, looked_at)
        assert (found.inf, found.nan, found.zeros, sum(found.counts)) == (0, 0, 0, 4)
        assert [found.low, found.high] == [float(looked_at.min()), float(looked_at.max())]


def test_parameters_outside_modules_are_distinguished():
    """Two without a name of their own: each has its shape, its gradient and its weight."""
    torch.manual_seed(0)
    ones = [nn.Parameter(torch.randn(3, 2)), nn.Parameter(torch.randn(5))]
    optimizer = torch.optim.SGD(ones, 0.1)
    truth = []
    with backprobe.trace() as trace:
        for _ in range(5):
            optimizer.zero_grad()
            sum((p**2).sum() for p in ones).backward()
            truth.append([(float(p.grad.norm()), float(p.detach().norm())) for p in ones])
            optimizer.step()
    found = {p.shape: p for p in trace.facts.of(FreeParameter)}
    assert found[3, 2].name != found[5,].name and all(p.reached == 5 and p.alive and p.trained for p in found.values())
    for step, true in zip(trace.steps, truth, strict=True):
        stats = [step.parameters.get(found[tuple(p.shape)].name) for p in ones]
        for stat, (grad, weight) in zip(stats, true, strict=True):
            if stat is not None:
                assert (stat.grad, stat.weight) == pytest.approx((grad, weight), rel=1e-5)
        nodes = {r.parameter: r.grad_outputs[0].norm for r in step.backwards[0].nodes if r.parameter}
        assert [nodes[found[tuple(p.shape)].name] for p in ones] == pytest.approx([g for g, _ in true], rel=1e-5)
    assert trace.steps[0].parameters
