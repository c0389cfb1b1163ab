"""Every differentiable operator of torch's own database: results as without us."""

from __future__ import annotations

import warnings

import pytest
import torch
from case_sampling import sample_cases
from torch.testing._internal.common_methods_invocations import op_db
from watching import same, watched

from backprobe.observe.session import Settings

OPS = [op for op in op_db if op.supports_autograd and torch.float64 in op.supported_backward_dtypes("cpu")]
SAMPLES = 2


def results(op, sample):
    """Output and gradients of one sample, on fresh leaves."""
    leaves = []

    def leaf(t):
        if isinstance(t, torch.Tensor) and t.requires_grad:
            t = t.detach().clone().requires_grad_()
            leaves.append(t)
        return t

    sample = sample.transform(leaf)
    torch.manual_seed(7)
    # Nothing may be changed in place: the leaves are leaves.
    out = op(sample.input, *sample.args, **sample.kwargs)
    if sample.output_process_fn_grad is not None:
        out = sample.output_process_fn_grad(out)
    outs = [o for o in (out if isinstance(out, (tuple, list)) else [out]) if isinstance(o, torch.Tensor)]
    outs = [o for o in outs if o.requires_grad and o.layout is torch.strided]
    if not outs:
        return None
    total = sum((o.abs() if o.is_complex() else o).sum() for o in outs)
    total.backward()
    return [[o.detach() for o in outs], [t.grad for t in leaves]]


@pytest.mark.parametrize(
    "op", sample_cases(OPS), ids=lambda op: f"{op.name}-{op.variant_test_name}".strip("-").replace("/", "_")
)
def test_operator(op) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        samples = list(op.sample_inputs("cpu", torch.float64, requires_grad=True))[:SAMPLES]
        for sample in samples:
            try:
                alone = results(op, sample)
            except Exception as error:  # not every sample can be summed and sent back
                alone = type(error)
            for inspected_steps in (3, 0):
                session, _ = watched(Settings(inspected_steps=inspected_steps))
                session.start()
                try:
                    seen = results(op, sample)
                except Exception as error:
                    seen = type(error)
                finally:
                    session.stop()
                assert same(alone, seen), (op.name, inspected_steps)
