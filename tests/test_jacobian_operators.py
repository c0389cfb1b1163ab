"""Every differentiable operator of torch's own database: VJP against backward, JVP against forward mode or the VJP."""

from __future__ import annotations

import warnings

import pytest
import torch
from case_sampling import sample_cases
from torch.autograd import forward_ad
from torch.testing._internal.common_methods_invocations import op_db

import backprobe as bp

#: ``zero_`` takes its tensor in place, and a leaf cannot be written.
NOT_RUN = {"zero_"}
OPS = [op for op in op_db if op.supports_autograd and torch.float64 in op.supported_backward_dtypes("cpu")]
OPS = [op for op in OPS if op.name not in NOT_RUN]
SAMPLES = 2
#: Operators for which some sample has no JVP although torch says that the backward has a derivative. Any other one
#: without a JVP has ``supports_gradgrad`` False.
NO_JVP = {
    "native_layer_norm": "its double backward meets a tensor that is None",
    "nn.functional.ctc_loss": "the native kernel's backward has no derivative",
    "nn.functional.scaled_dot_product_attention": "the kernel of flash attention has no second derivative",
    "nn.functional.linear_cross_entropy": "chunked_none computes into out= in its backward",
}
#: Torch's forward mode and its backward disagree for a sample (finite differences side with forward mode), so our JVP,
#: which is the transpose of the backward, is held against the backward only.
DISAGREE = {
    "as_strided_scatter": "a tensor that is overwritten whole",
    "nn.functional.max_unpool1d": "two values go to one place",
    "nn.functional.max_unpool2d": "two values go to one place",
    "nn.functional.max_unpool3d": "two values go to one place",
}


def name_of(op) -> str:
    return f"{op.name}-{op.variant_test_name}".strip("-").replace("/", "_")


def run(op, sample, leaves):
    """Outputs that can be differentiated, of one sample with `leaves` for its tensors that require grad."""
    torch.manual_seed(7)
    at = iter(leaves)
    sample = sample.transform(lambda t: next(at) if isinstance(t, torch.Tensor) and t.requires_grad else t)
    out = op.gradcheck_wrapper(op.get_op(), sample.input, *sample.args, **sample.kwargs)
    if sample.output_process_fn_grad is not None:
        out = sample.output_process_fn_grad(out)
    outs = out if isinstance(out, (tuple, list)) else [out]
    return [o for o in outs if isinstance(o, torch.Tensor) and o.layout is torch.strided]


def leaves_of(sample):
    found = []
    sample.transform(lambda t: found.append(t) or t if isinstance(t, torch.Tensor) and t.requires_grad else t)
    return [t.detach().clone() for t in found]


def random_like(tensors, generator):
    return [torch.randn(t.shape, generator=generator, dtype=t.dtype) for t in tensors]


def inner(a, b) -> float:
    return float(sum((p.conj() * q).real.sum() for p, q in zip(a, b, strict=True)))


def largest(tensors) -> float:
    return max((float(t.abs().max()) for t in tensors if t.numel()), default=0.0)


def forward_mode(op, sample, points, u, keep):
    """J u by dual numbers; None where torch has no forward mode."""
    if not op.supports_forward_ad or op.name in DISAGREE:
        return None
    try:
        with forward_ad.dual_level():
            outs = run(
                op,
                sample,
                [forward_ad.make_dual(p.clone().requires_grad_(), d) for p, d in zip(points, u, strict=True)],
            )
            tangents = [forward_ad.unpack_dual(outs[i]).tangent for i in keep]
    except (RuntimeError, NotImplementedError):
        return None
    return [None if t is None else t.detach() for t in tangents]


def compare(op, sample) -> str:
    """Check VJP and JVP of one sample; return how the JVP was checked, or why it was not."""
    points = leaves_of(sample)
    if any(p.layout is not torch.strided or not p.is_floating_point() for p in points):
        return "not dense floating"
    leaves = [p.clone().requires_grad_() for p in points]
    outs = run(op, sample, leaves)
    keep = [i for i, o in enumerate(outs) if o.requires_grad]
    outs = [outs[i] for i in keep]
    if not outs:
        return "no output"
    generator = torch.Generator().manual_seed(3)
    v, u = random_like(outs, generator), random_like(points, generator)
    ours = bp.vjp(outs, leaves, v, unconnected="zero")
    others = [p.clone().requires_grad_() for p in points]
    again = run(op, sample, others)
    torch.autograd.backward([again[i] for i in keep], v)
    for mine, leaf in zip(ours, others, strict=True):
        expected = torch.zeros_like(leaf) if leaf.grad is None else leaf.grad
        torch.testing.assert_close(mine, expected, equal_nan=True)
    assert all(leaf.grad is None for leaf in leaves)
    try:
        pushed = bp.jvp(outs, leaves, u, unconnected="zero")
    except bp.BackprobeError as error:
        assert "no JVP" in str(error)
        return "no JVP"
    if not all(torch.isfinite(t).all() for t in [*ours, *pushed]):
        return "not finite"
    exactness = max(torch.finfo(t.dtype).eps for t in [*outs, *points]) * 1e4
    scale = sum(float(t.abs().sum()) for t in [*ours, *pushed]) + 1
    assert abs(inner(v, pushed) - inner(ours, u)) <= exactness * scale * largest([*u, *v])
    tangents = forward_mode(op, sample, points, u, keep)
    if tangents is None:
        return "adjoint"
    for mine, tangent in zip(pushed, tangents, strict=True):
        expected = torch.zeros_like(mine) if tangent is None else tangent
        torch.testing.assert_close(mine, expected, rtol=1e-5, atol=1e-5)
    return "forward mode"


@pytest.mark.parametrize("op", sample_cases(OPS), ids=name_of)
def test_operator(op) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        samples = list(op.sample_inputs("cpu", torch.float64, requires_grad=True))[:SAMPLES]
        found = {compare(op, sample) for sample in samples}
    assert ("no JVP" in found) <= (not op.supports_gradgrad or op.name in NO_JVP)


def test_most_operators_are_held_against_forward_mode() -> None:
    """The weaker comparisons stay few."""
    some = OPS[::12]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = [compare(op, next(iter(op.sample_inputs("cpu", torch.float64, requires_grad=True)))) for op in some]
    assert found.count("forward mode") > 0.75 * len(some), found
