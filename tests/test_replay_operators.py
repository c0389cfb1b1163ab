"""Every differentiable operator of torch's own database: a replay has the engine's bits, node by node, and every node
can be run in float64."""

from __future__ import annotations

import warnings

import pytest
import torch
from case_sampling import sample_cases
from test_jacobian_operators import leaves_of, name_of, run
from torch.testing._internal.common_methods_invocations import op_db

import backprobe
from backprobe.engine.difference import bitwise_equal
from backprobe.torch_internals import isolation

#: Operators of which no sample has a dense output with a graph, with the reason. All others are replayed.
NO_GRAPH = {
    "normal-number_mean": "its output does not depend on its input",
    "sparse.sampled_addmm": "its output is sparse; test_replay.py has sparse gradients",
}
OPS = [op for op in op_db if op.supports_autograd and torch.float64 in op.supported_backward_dtypes("cpu")]
SAMPLES = 2


@pytest.fixture(autouse=True)
def no_search(monkeypatch) -> None:
    """Looking for tensors that keep gradients takes longer than most operators do; test_replay.py tests it."""
    monkeypatch.setattr(isolation, "activations_retaining_gradient", list)


def graph_of(op, sample):
    """Leaves, outputs that have a graph, and a gradient for each; ``None`` where there is nothing to differentiate."""
    leaves = [p.clone().requires_grad_() for p in leaves_of(sample)]
    outs = [o for o in run(op, sample, leaves) if o.requires_grad]
    if not outs:
        return None
    torch.manual_seed(3)
    return leaves, outs, [torch.randn(o.shape, dtype=o.dtype) for o in outs]


def samples_of(op, dtype):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield from list(op.sample_inputs("cpu", dtype, requires_grad=True))[:SAMPLES]


def replayed(op, dtype) -> int:
    """How many samples were held against the engine."""
    count = 0
    for sample in samples_of(op, dtype):
        found = graph_of(op, sample)
        if found is None:
            continue
        leaves, outs, given = found
        state = torch.get_rng_state()
        torch.autograd.backward(outs, given, retain_graph=True)
        expected = [leaf.grad for leaf in leaves]
        torch.set_rng_state(state)
        for leaf in leaves:
            leaf.grad = None
        replay = backprobe.replay(outs, given)
        grads = replay.finish()
        assert all(bitwise_equal(grads.get(leaf), e) for leaf, e in zip(leaves, expected, strict=True))
        parity = replay.compare()
        assert parity.identical, str(parity)
        assert parity.same_order
        assert all(leaf.grad is None for leaf in leaves)
        count += 1
    return count


@pytest.mark.parametrize("op", sample_cases(OPS), ids=name_of)
def test_a_replay_has_the_engines_bits(op) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert (replayed(op, torch.float64) == 0) == (name_of(op) in NO_GRAPH)


WIDE = [o for o in OPS if torch.float32 in o.supported_backward_dtypes("cpu")]


@pytest.mark.parametrize("op", WIDE[::15], ids=name_of)
def test_nodes_run_in_float64(op) -> None:
    assert_float64_is_near(op)


@pytest.mark.slow
@pytest.mark.parametrize("op", WIDE, ids=name_of)
def test_every_node_runs_in_float64(op) -> None:
    assert_float64_is_near(op)


def assert_float64_is_near(op) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for sample in samples_of(op, torch.float32):
            found = graph_of(op, sample)
            if found is None:
                continue
            _, outs, given = found
            replay = backprobe.replay(outs, given)
            replay.finish()
            rounding = replay.rounding()
            assert rounding.not_compared == [], str(rounding)
            # Held against float32's own precision: a wrong formula would be far off.
            for row in rounding.different:
                assert row.difference is not None, str(row)
                ran = next(r for r in replay.runs if r.node == row.node)
                scale = max(
                    float(g.detach().to_dense().abs().max())
                    for g in (*ran.grad_outputs, *ran.grad_inputs)
                    if g is not None and g.numel()
                )
                assert row.difference <= 2e-3 * max(scale, 1e-30) or row.error < 1e-3, str(row)
