"""Tensors that a run inspects: which, when, and their numbers against those of torch."""

from __future__ import annotations

import math
import subprocess
import sys

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from torch import nn

import backprobe
from backprobe.observe.trackers import tensors as looking
from backprobe.observe.trackers.tensors import bounds, due, picture, seen
from backprobe.records import TensorSeen
from backprobe.store.reader import open_run


def test_steps_are_inspected_less_and_less_often():
    assert [s for s in range(2001) if due(s)] == [0, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000]


@given(st.lists(st.floats(width=32), min_size=1, max_size=40))
@example([-1.401298464324817e-45])  # the edges have no place in float32
def test_a_histogram_counts_every_finite_value(values):
    tensor = torch.tensor(values, dtype=torch.float32)
    made = seen("w", "weight", "", 0, tensor)
    finite = [v for v in values if math.isfinite(v)]
    assert sum(made.counts) == len(finite) and len(made.counts) == len(made.edges) - 1
    assert made.nan == sum(math.isnan(v) for v in values) and made.inf == len(values) - len(finite) - made.nan
    assert made.zeros == sum(v == 0 for v in values)
    assert list(made.edges) == sorted(made.edges)
    last = len(made.counts) - 1
    for k, count in enumerate(made.counts):
        low = -math.inf if k == 0 else made.edges[k]
        high = math.inf if k == last else made.edges[k + 1]
        assert count == sum(low <= v < high for v in finite)
    if finite:
        assert (made.low, made.high) == (min(finite), max(finite))
        assert made.mean == pytest.approx(sum(finite) / len(finite), rel=1e-4, abs=1e-6 * max(map(abs, finite)))


def test_bins_are_symmetric_and_cover_six_decades():
    edges = bounds(10.0)
    assert edges[-1] == 10 and edges[0] == -10 and min(map(abs, edges)) == pytest.approx(1e-5)
    assert [-e for e in reversed(edges)] == edges


def test_a_picture_is_the_mean_of_each_cell():
    values = torch.arange(2 * 48 * 96, dtype=torch.float32).reshape(2, 48, 96)
    got = picture(values)
    assert len(got) == 24 and len(got[0]) == 24
    flat = values.reshape(96, 96)
    for i in (0, 7, 23):
        for j in (0, 5, 23):
            cell = flat[4 * i : 4 * i + 4, 4 * j : 4 * j + 4]
            assert got[i][j] == pytest.approx(float(cell.mean()), rel=1e-3)
    assert picture(torch.tensor([1.0, 2.0])) == ((1.0, 2.0),) and picture(torch.tensor(3.0)) == ((3.0,),)


def train(tensors, steps=6):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    kept = []
    with backprobe.trace(model, histograms=tensors) as trace:
        for _ in range(steps):
            out = model(torch.randn(5, 4))
            optimizer.zero_grad()
            out.square().mean().backward()
            kept.append((model[2].weight.detach().clone(), model[2].weight.grad.clone(), out.detach().clone()))
            optimizer.step()
    return trace, kept


def test_selected_tensors_are_measured(tmp_path):
    trace, kept = train("2*")
    found = {(t.name, t.kind, t.step): t for t in trace.facts.of(TensorSeen)}
    names = {
        ("2", "output"),
        ("2.weight", "weight"),
        ("2.weight", "gradient"),
        ("2.bias", "weight"),
        ("2.bias", "gradient"),
    }
    assert set(found) == {(*n, s) for n in names for s in (0, 1, 2, 5)}
    for step in (0, 1, 2, 5):
        for kind, tensor in zip(("weight", "gradient", "output"), kept[step], strict=True):
            got = found[("2" if kind == "output" else "2.weight", kind, step)]
            assert got.shape == tuple(tensor.shape) and got.module == "2"
            assert got.mean == pytest.approx(float(tensor.mean()), abs=1e-6)
            assert got.std == pytest.approx(float(tensor.std(correction=0)), rel=1e-5)
            assert got.high == float(tensor.max())
    trace.save(tmp_path / "run")
    assert open_run(tmp_path / "run").facts.of(TensorSeen) == trace.facts.of(TensorSeen)


def test_training_is_the_same():
    plain, looked = train(()), train(["*"])
    assert plain[0].facts.of(TensorSeen) == () and looked[0].facts.of(TensorSeen)
    for a, b in zip(plain[1], looked[1], strict=True):
        assert all(torch.equal(x, y) for x, y in zip(a, b, strict=True))


def test_a_run_holds_so_many(monkeypatch):
    monkeypatch.setattr(looking, "MAX_RECORDS", 7)
    trace, _ = train("*")
    assert len(trace.facts.of(TensorSeen)) == 7
    (unseen,) = [u for u in trace.coverage.unseen if u.what == "tensors"]
    assert unseen.count > 0 and "choose fewer with --histograms" in unseen.note


def test_tensors_without_plain_values_are_left_out():
    assert seen("x", "output", "", 0, torch.zeros(3, dtype=torch.complex64)) is None
    assert seen("x", "output", "", 0, torch.zeros(0)) is None
    assert seen("x", "output", "", 0, torch.zeros(3, device="meta")) is None
    assert seen("x", "output", "", 0, torch.eye(3).to_sparse()) is None
    inside = []
    torch.func.vmap(lambda x: inside.append(seen("x", "output", "", 0, x)) or x)(torch.ones(2, 3))
    assert inside[0] is None or inside[0].shape == (3,)


def test_the_command(tmp_path):
    (tmp_path / "train.py").write_text(
        "import torch\nm = torch.nn.Linear(3, 1)\no = torch.optim.SGD(m.parameters(), 0.1)\n"
        "for _ in range(3):\n    o.zero_grad(); m(torch.ones(2, 3)).sum().backward(); o.step()\n"
    )
    command = [sys.executable, "-m", "backprobe", "run", "--quiet", "--out", "r", "--histograms", "weight", "train.py"]
    subprocess.run(command, cwd=tmp_path, check=True, timeout=600)
    found = open_run(tmp_path / "r").facts.of(TensorSeen)
    assert [(t.name, t.kind, t.step) for t in found] == [
        ("weight", kind, s) for s in range(3) for kind in ("weight", "gradient")
    ]
