"""VJP, JVP and the dense Jacobian between tensors of one graph: against slow oracles; side effects; errors."""

from __future__ import annotations

import gc
import math
import subprocess
import sys
import weakref
from collections import namedtuple
from unittest import mock

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.checkpoint import checkpoint

import backprobe as bp
from backprobe.torch_internals import retain_grad


def rows(y: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """The dense Jacobian by a loop of ``autograd.grad``: [elements of y, elements of x]."""
    found = []
    for i in range(y.numel()):
        unit = torch.zeros(y.numel(), dtype=y.dtype)
        unit[i] = 1
        (g,) = torch.autograd.grad(y, x, unit.reshape(y.shape), retain_graph=True, allow_unused=True)
        found.append(torch.zeros(x.numel(), dtype=x.dtype) if g is None else g.reshape(-1))
    return torch.stack(found)


def small() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    x = torch.randn(3, 4, dtype=torch.float64, requires_grad=True)
    h = (x * 2).tanh()
    return x, h, (h @ torch.randn(4, 5, dtype=torch.float64)).sin() + h.sum(1, keepdim=True)


# Results.


def test_products_are_those_of_the_dense_jacobian() -> None:
    x, h, y = small()
    for inner in (x, h):
        dense = rows(y, inner)
        v, u = torch.randn_like(y), torch.randn_like(inner)
        for _ in range(2):  # repeatable
            torch.testing.assert_close(bp.vjp(y, inner, v).reshape(-1), v.reshape(-1) @ dense)
            torch.testing.assert_close(bp.jvp(y, inner, u).reshape(-1), dense @ u.reshape(-1))
        torch.testing.assert_close(bp.jacobian(y, inner), dense.reshape(3, 5, 3, 4))
        torch.testing.assert_close(bp.vjp(y, inner), dense.sum(0).reshape(3, 4))


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")  # torch.func.jvp asks for it
def test_the_jacobian_is_that_of_torch_func() -> None:
    torch.manual_seed(1)
    w = torch.randn(6, 4, dtype=torch.float64)

    def f(x):
        return (x @ w.T).relu().cumsum(0)

    x = torch.randn(3, 4, dtype=torch.float64)
    ours = bp.jacobian(f(leaf := x.clone().requires_grad_()), leaf)
    torch.testing.assert_close(ours, torch.func.jacrev(f)(x))
    u = torch.randn_like(x)
    torch.testing.assert_close(bp.jvp(f(leaf), leaf, u), torch.func.jvp(f, (x,), (u,))[1])
    step = 1e-6
    torch.testing.assert_close(bp.jvp(f(leaf), leaf, u), (f(x + step * u) - f(x - step * u)) / (2 * step))


@pytest.mark.parametrize("chunk", [1, 2, 5, 100])
def test_chunks_and_columns_give_the_same_jacobian(chunk: int) -> None:
    x, _, y = small()
    torch.testing.assert_close(bp.jacobian(y, x, chunk=chunk), rows(y, x).reshape(3, 5, 3, 4))
    s = torch.randn(2, dtype=torch.float64, requires_grad=True)
    tall = torch.outer(torch.arange(20.0, dtype=torch.float64), s.exp()).sum(1)  # columns: x is smaller
    torch.testing.assert_close(bp.jacobian(tall, s, chunk=chunk), rows(tall, s))


def test_structures_come_back() -> None:
    x, h, y = small()
    Pair = namedtuple("Pair", "first second")
    found = bp.vjp({"y": y, "more": [h]}, Pair(x, h), {"y": torch.ones_like(y), "more": [torch.ones_like(h)]})
    assert isinstance(found, Pair)
    expected = torch.autograd.grad([y, h], [x, h], [torch.ones_like(y), torch.ones_like(h)], retain_graph=True)
    assert torch.equal(found.first, expected[0]) and torch.equal(found.second, expected[1])
    pushed = bp.jvp({"y": y, "more": (h,)}, [x, h], [torch.ones_like(x), torch.zeros_like(h)])
    assert list(pushed) == ["y", "more"] and isinstance(pushed["more"], tuple)
    torch.testing.assert_close(pushed["more"][0].reshape(-1), rows(h, x).sum(1))
    dense = bp.jacobian([y, h], {"x": x, "h": h})
    assert [{k: t.shape for k, t in one.items()} for one in dense] == [
        {"x": (3, 5, 3, 4), "h": (3, 5, 3, 4)},
        {"x": (3, 4, 3, 4), "h": (3, 4, 3, 4)},
    ]
    torch.testing.assert_close(dense[1]["h"].reshape(12, 12), torch.eye(12, dtype=torch.float64))


def test_linearize_serves_many_products() -> None:
    x, h, y = small()
    line = bp.linearize(y, (x, h))
    u = (torch.randn(7, 3, 4).double(), torch.randn(7, 3, 4).double())
    expected = u[0].reshape(7, -1) @ rows(y, x).T + u[1].reshape(7, -1) @ rows(y, h).T
    torch.testing.assert_close(line.jvps(u).reshape(7, -1), expected)
    torch.testing.assert_close(line.jvp((u[0][2], u[1][2])).reshape(-1), expected[2])
    v = torch.randn(4, 3, 5).double()
    torch.testing.assert_close(line.vjps(v)[0].reshape(4, -1), v.reshape(4, -1) @ rows(y, x))
    assert torch.equal(line.vjp(v[0])[0], bp.vjp(y, x, v[0]))
    assert line.shape == (15, 24)
    assert "15 x 24" in repr(line)


def test_complex_products_are_the_real_ones_of_real_and_imaginary_parts() -> None:
    torch.manual_seed(0)
    r = torch.randn(4, 2, dtype=torch.float64, requires_grad=True)
    z = torch.view_as_complex(r)
    w = z**2 * (1 + 2j) + z.conj() * z.abs()
    dense = rows(torch.view_as_real(w), r)
    u, v = torch.randn(2, 4, dtype=torch.complex128)
    as_real = torch.view_as_real
    torch.testing.assert_close(as_real(bp.jvp(w, z, u)).reshape(-1), dense @ as_real(u).reshape(-1))
    torch.testing.assert_close(as_real(bp.vjp(w, z, v)).reshape(-1), as_real(v).reshape(-1) @ dense)
    for call in (bp.jacobian, bp.jacobian_norm, bp.spectral_norm):
        with pytest.raises(bp.BackprobeError, match=r"complex128.*view_as_real"):
            call(w, z)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_low_precision_keeps_its_dtype(dtype) -> None:
    x = torch.randn(3, 4, dtype=dtype, requires_grad=True)
    y = (x * 3).relu() + 1
    assert bp.vjp(y, x).dtype == bp.jvp(y, x).dtype == bp.jacobian(y, x).dtype == dtype
    torch.testing.assert_close(bp.jvp(y, x), torch.where(x > 0, 3.0, 0.0).to(dtype))


OPS = [torch.sin, torch.tanh, lambda t: t * t, lambda t: t[..., :1] * t, lambda t: t.cumsum(-1), lambda t: t * 0.5]


@st.composite
def graphs(draw):
    """Steps of a graph over tensors of one shape: (op, first, second) with the numbers of earlier tensors."""

    def upto(last: int) -> int:
        return draw(st.integers(0, last))

    return [(upto(len(OPS) - 1), upto(i + 1), upto(i + 1)) for i in range(draw(st.integers(1, 7)))]


@settings(max_examples=40)
@given(graphs(), st.data())
def test_generated_graphs(steps, data) -> None:
    """Shared nodes, several y and x, some of them not connected, x on the way to another x."""
    generator = torch.Generator().manual_seed(len(steps))
    made = [torch.randn(2, 3, generator=generator, dtype=torch.float64, requires_grad=True) for _ in range(2)]
    for op, a, b in steps:
        made.append(OPS[op](made[a]) + made[b])
    numbers = st.lists(st.integers(0, len(made) - 1), min_size=1, max_size=3)
    ys, xs = ([made[i] for i in data.draw(numbers)] for _ in range(2))
    dense = torch.cat([torch.cat([rows(y, x) for x in xs], 1) for y in ys])
    v = [torch.randn(2, 3, generator=generator, dtype=torch.float64) for _ in ys]
    u = [torch.randn(2, 3, generator=generator, dtype=torch.float64) for _ in xs]
    pulled = torch.cat([g.reshape(-1) for g in bp.vjp(ys, xs, v, unconnected="zero")])
    torch.testing.assert_close(pulled, torch.cat([c.reshape(-1) for c in v]) @ dense)
    pushed = torch.cat([t.reshape(-1) for t in bp.jvp(ys, xs, u, unconnected="zero")])
    torch.testing.assert_close(pushed, dense @ torch.cat([c.reshape(-1) for c in u]))
    lost = [i for i, x in enumerate(xs) if not reached(ys, x)]
    if lost:
        with pytest.raises(bp.BackprobeError, match=rf"x\[{lost[0]}\].* is not reached from"):
            bp.vjp(ys, xs, v)
    else:
        torch.testing.assert_close(float(bp.jacobian_norm(ys, xs)), float(dense.norm()))


def reached(ys, x) -> bool:
    ones = [torch.ones_like(y) for y in ys]
    return torch.autograd.grad(ys, x, ones, retain_graph=True, allow_unused=True)[0] is not None


# What stays as it was.


def test_nothing_of_the_users_changes() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 40), nn.Tanh(), nn.Linear(40, 50))
    x = torch.randn(2, 6, requires_grad=True)
    h = model[0](x)
    h.retain_grad()
    y = model[2](model[1](h))
    y.sum().backward(retain_graph=True)
    kept = [t.grad for t in (h, x, *model.parameters())]
    values = [g.clone() for g in kept]
    state, hooks = torch.get_rng_state(), len(h._backward_hooks or {})
    acts = {"x": x, "h": h}
    bp.vjp(y, x), bp.jvp(y, x), bp.jacobian(y, x), bp.linearize(y, x).vjps(torch.ones(3, 2, 50))
    bp.jacobian_norm(y, x, method="estimate"), bp.jacobian_norm(y, x, per="sample"), bp.spectral_norm(y, x)
    bp.sensitivity(acts, y)
    with pytest.raises(bp.BackprobeError):
        bp.vjp(y, [x, torch.zeros(1, requires_grad=True)])
    now = [t.grad for t in (h, x, *model.parameters())]
    assert all(a is b for a, b in zip(now, kept, strict=True))
    assert all(torch.equal(a, b) for a, b in zip(now, values, strict=True))
    assert torch.equal(state, torch.get_rng_state())
    assert len(h._backward_hooks or {}) == hooks
    y.sum().backward()  # the graph is still there
    assert torch.equal(x.grad, 2 * values[1])


class Doubles(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return 2 * x

    @staticmethod
    def backward(ctx, grad):
        return 2 * grad


def first_half(h):
    return h.unbind(1)[0]


@pytest.mark.parametrize("make", [torch.tanh, Doubles.apply, first_half, lambda h: h.view(-1), lambda h: h.add_(1)])
def test_activations_that_retain_gradients_are_found_on_any_node(make) -> None:
    """The count in a node's memory, for operators, custom Functions, several outputs, views, writes in place."""
    x = torch.randn(3, 4, requires_grad=True)
    h = make(x * 2)
    y = (h * 3).sum()
    line = bp.linearize(y, x)
    line.vjp(), line.jvp()
    with mock.patch.object(retain_grad, "activations_retaining_gradient", side_effect=AssertionError("a search")):
        line.vjp(), bp.vjp(y, x)  # no tensor retains its gradient, so there is no search
    h.retain_grad()
    y.backward(retain_graph=True)
    grad, value = h.grad, h.grad.clone()
    line.vjp(), line.vjps(torch.ones(3)), bp.vjp(y, x), bp.jacobian(y, x)
    assert h.grad is grad and torch.equal(grad, value)


def test_the_search_for_retained_gradients_scans_all_objects_once() -> None:
    """Afterwards they are known; new ones are young; only one that grew old before it retained is searched for."""
    x = torch.randn(3, requires_grad=True)
    (first := x.exp()).retain_grad()
    late = first.sin()
    y = late.sum()
    gc.collect()  # all of them are old now
    bp.vjp(y, x)
    with mock.patch.object(retain_grad, "activations_retaining_gradient", side_effect=AssertionError("a search")):
        bp.vjp(y, x)
        (second := x.tanh()).retain_grad()
        bp.vjp((second * first).sum(), x)
    late.retain_grad()
    bp.vjp(y, x)
    assert first.grad is None and second.grad is None and late.grad is None
    late_id = id(late)
    del late
    assert all(id(tensor) != late_id for tensor in retain_grad.activations_retaining_gradient())
    bp.vjp(y, x)  # more was counted than has a Python object
    assert first.grad is None


def test_nothing_of_a_call_waits_for_the_collector() -> None:
    x = torch.randn(3, requires_grad=True)
    y = x.exp()
    gone = weakref.ref(y)
    gc.collect()
    gc.disable()
    try:
        bp.vjp(y, x), bp.jvp(y, x), bp.linearize(y, x).vjp()
        del y
        assert gone() is None
    finally:
        gc.enable()


def test_every_node_is_counted_once() -> None:
    x = torch.ones(1, requires_grad=True)
    y = x.neg()
    z = Doubles.apply(y.view(-1) * y) + y
    layout = retain_grad._layout()
    assert layout is not None and layout.count([z.grad_fn, y.grad_fn])[0] == 0
    y.retain_grad()
    assert layout.count([z.grad_fn, y.grad_fn])[0] == layout.count([z.grad_fn])[0] == 1


def test_all_objects_are_scanned_if_nodes_are_unreadable() -> None:
    x = torch.randn(3, requires_grad=True)
    (h := x.exp()).retain_grad()
    for layout in (lambda: None, lambda: mock.Mock(count=lambda roots: (-1, []))):
        with mock.patch.object(retain_grad, "_layout", layout):
            bp.vjp(h.sum(), x)
        assert h.grad is None


# What a capture holds.


def captured():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 5), nn.ReLU(inplace=True), nn.Linear(5, 3))
    x = torch.randn(2, 4, requires_grad=True)
    return x, bp.capture(model, x)


def test_derivatives_add_nothing_to_captured_gradients() -> None:
    x, acts = captured()
    y = acts.output
    everything = [
        lambda: bp.vjp(y, x),
        lambda: bp.jvp(y, x),
        lambda: bp.jacobian(y, x),
        lambda: bp.linearize(y, acts["1"]).vjps(torch.ones(3, 2, 3)),
        lambda: bp.jacobian_norm(y, x),
        lambda: bp.jacobian_norm(y, x, method="hutchinson", products=4),
        lambda: bp.jacobian_norm(y, x, per="sample"),
        lambda: bp.spectral_norm(y, x),
        lambda: bp.sensitivity({"x": x, "y": y}, "y"),
    ]
    for call in everything:
        call()
    assert not acts.grads
    y.sum().backward(retain_graph=True)
    before = {name: (acts.grads[name], acts.grads[name].clone(), acts[name].grad) for name in acts.grads}
    assert len(before) == 4
    for call in everything:
        call()
    for name, (grad, value, shown) in before.items():
        assert acts.grads[name] is grad and torch.equal(grad, value) and acts[name].grad is shown
    y.sum().backward()
    assert all(torch.equal(acts.grads[name], 2 * value) for name, (_, value, _) in before.items())


def test_a_capture_leaves_batches_alone() -> None:
    x, acts = captured()
    line = bp.linearize(acts.output, x)
    line.vjps(torch.ones(3, 2, 3)), line.jvps(torch.ones(3, 2, 4))
    assert line._products.vjp.looped is None and line._products.jvp.looped is None


def batched(y, x, vs):
    return torch.autograd.grad(y, x, vs, retain_graph=True, is_grads_batched=True)[0]


def mapped(y, x, vs):
    return torch.func.vmap(lambda v: torch.autograd.grad(y, x, v, retain_graph=True)[0])(vs)


def mapped_twice(y, x, vs):
    pairs = vs.reshape(2, -1, *y.shape)
    each = torch.func.vmap(lambda v: torch.autograd.grad(y, x, v, retain_graph=True)[0], in_dims=0)
    return torch.func.vmap(each, in_dims=1, out_dims=1)(pairs.transpose(0, 1)).transpose(0, 1).reshape(-1, *x.shape)


@pytest.mark.parametrize("many", [batched, mapped, mapped_twice])
@pytest.mark.parametrize("options", [{}, {"index": (0,)}, {"reduce": torch.Tensor.abs}, {"dtype": torch.float64}])
def test_gradients_of_many_backwards_at_once_are_captured_as_those_of_a_loop(many, options) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 5), nn.ReLU(inplace=True), nn.Linear(5, 3))
    x, vs = torch.randn(2, 4, requires_grad=True), torch.randn(6, 2, 3)
    once, loop = bp.capture(model, x, **options), bp.capture(model, x, **options)
    found = many(once.output, x, vs)
    rows = [torch.autograd.grad(loop.output, x, v, retain_graph=True)[0] for v in vs]
    torch.testing.assert_close(found, torch.stack(rows))
    assert list(once.grads) == list(loop.grads) and len(once.grads) == 4
    for name in loop.grads:
        assert type(once.grads[name]) is torch.Tensor
        torch.testing.assert_close(once.grads[name], loop.grads[name])


def test_a_view_that_is_written_has_its_gradient_of_many_backwards_too() -> None:
    class Writes(nn.Module):
        def forward(self, x):
            h = x * 2
            part = self.part(h[:, 1])
            part.mul_(3)
            return h.sum(1)

        def __init__(self):
            super().__init__()
            self.part = nn.Identity()

    x, vs = torch.randn(2, 4, requires_grad=True), torch.randn(5, 2)
    once, loop = bp.capture(Writes(), x, select="part"), bp.capture(Writes(), x, select="part")
    batched(once.output, x, vs)
    for v in vs:
        torch.autograd.grad(loop.output, x, v, retain_graph=True)
    torch.testing.assert_close(once.grads["part"], loop.grads["part"])
    torch.testing.assert_close(loop.grads["part"], 3 * vs.sum(0))


def test_a_captured_graph_inside_transforms() -> None:
    x, acts = captured()
    y = acts.output
    torch.func.jacrev(lambda v: mapped(y, x, v.detach()))(torch.randn(2, 2, 3))
    torch.func.grad(lambda s: torch.autograd.grad(y, x, s * torch.ones_like(y), retain_graph=True)[0].sum())(
        torch.ones(())
    )
    assert all(not torch._C._functorch.is_functorch_wrapped_tensor(acts.grads[name]) for name in acts.grads)
    str(acts.grads)
    y.sum().backward()


def test_a_linearization_does_not_keep_the_graph_when_it_is_gone() -> None:
    import weakref

    x = torch.randn(4, requires_grad=True)
    y = x.exp()
    line = bp.linearize(y, x)
    line.jvp()
    ref = weakref.ref(y)
    del y, line
    gc.collect()
    assert ref() is None


def test_modes_around_do_not_matter() -> None:
    x, _, y = small()
    dense = rows(y, x)
    for mode in (torch.no_grad(), torch.inference_mode(), torch.autograd.set_detect_anomaly(False)):
        with mode:
            torch.testing.assert_close(bp.jvp(y, x).reshape(-1), dense.sum(1))
            torch.testing.assert_close(float(bp.jacobian_norm(y, x)), float(dense.norm()))
    assert torch.is_grad_enabled()


def test_a_trace_does_not_see_it() -> None:
    model = nn.Linear(3, 4)
    with bp.trace(model) as trace:
        x = torch.randn(2, 3, requires_grad=True)
        y = model(x)
        bp.jacobian_norm(y, x), bp.jvp(y, x)
        y.sum().backward()
    assert sum(len(step.backwards) for step in trace.steps) == 1


def test_hooks_run_and_batches_give_way_to_a_loop() -> None:
    x = torch.randn(3, 4, dtype=torch.float64, requires_grad=True)
    h = x * 2
    seen = []
    h.register_hook(lambda g: seen.append(g.norm().item()))  # no value inside a batch
    y = h.tanh()
    torch.testing.assert_close(bp.jacobian(y, x).reshape(12, 12), rows(y, x))
    assert seen
    norm = bp.jacobian_norm(y, x)
    assert norm.exact and "one by one" in norm.note and "one by one" in repr(norm)


def test_a_batch_that_differs_from_one_product_is_not_believed() -> None:
    class Odd(torch.autograd.Function):
        """Right for one gradient, wrong for a batch."""

        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return g * (2 if not torch._C._functorch.is_batchedtensor(g) else 3)

    x = torch.randn(5, requires_grad=True)
    y = Odd.apply(x)
    torch.testing.assert_close(bp.jacobian(y, x), 2 * torch.eye(5))


# Errors.


def error(call) -> str:
    with pytest.raises(bp.BackprobeError) as caught:
        call()
    return str(caught.value)


def test_not_attached_and_integers() -> None:
    x, _, y = small()
    assert "x is not attached to a graph: it does not require grad" in error(lambda: bp.vjp(y, x.detach()))
    assert "y is not attached to a graph: it has no grad_fn" in error(lambda: bp.vjp(y.detach(), x))
    with torch.inference_mode():
        z = x * 2
    assert "z['a'] was" not in (text := error(lambda: bp.vjp({"a": z}, x))) and "inference_mode" in text
    assert "y['a'] is torch.int64: only floating point" in error(lambda: bp.jvp({"a": y.long()}, x))
    assert "y is a float: give a tensor" in error(lambda: bp.vjp(1.0, x))
    assert "x holds no tensor" in error(lambda: bp.vjp(y, []))


def test_not_connected_says_where_the_path_ends() -> None:
    x, h, y = small()
    other = torch.randn(2, requires_grad=True)
    text = error(lambda: bp.vjp(y, {"x": x, "other": other}))
    assert "x['other'] (1 of 2) is not reached from y" in text
    assert "ends at a leaf of shape [3, 4]" in text
    assert "Exchange y and x" in error(lambda: bp.vjp(h, y))
    cut = (h.detach().requires_grad_() * 2).sum()
    text = error(lambda: bp.jacobian_norm(cut, x))
    assert "x is not reached from y" in text and "detach()" in text
    for call in (bp.jacobian, bp.jacobian_norm, bp.spectral_norm):
        assert "x is not reached from y" in error(lambda call=call: call(y, other))
    assert "is not reached" in error(lambda: bp.linearize(y, other).vjps(torch.ones(2, 3, 5)))
    alike = torch.ones_like(x).requires_grad_()
    for per in ("sample", "token"):
        assert "is not reached" in error(lambda per=per: bp.jacobian_norm(y, alike, per=per))
    assert torch.equal(bp.vjp(y, other, unconnected="zero"), torch.zeros(2))
    assert torch.equal(bp.jvp(y, other, unconnected="zero"), torch.zeros_like(y))
    assert "give 'error' or 'zero'" in error(lambda: bp.vjp(y, x, unconnected="no"))


def test_a_gradient_that_is_none_on_a_connected_path_is_zero() -> None:
    class Nothing(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return None

    x = torch.randn(3, requires_grad=True)
    assert torch.equal(bp.vjp(Nothing.apply(x), x), torch.zeros(3))


def test_freed_graphs_and_tensors_changed_in_place() -> None:
    x = torch.randn(3, requires_grad=True)
    y = x.exp()
    y.sum().backward()
    assert "VJP of y with respect to x: the graph is freed" in error(lambda: bp.vjp(y, x))
    assert "the graph is freed" in error(lambda: bp.jvp(y, x))
    h = (x * 2).exp()
    z = h * h
    h.mul_(2)
    text = error(lambda: bp.vjp(z, x))
    assert "output 0 of Mul (shape [3], now at version 1) was changed in place" in text
    h = x * 2
    z = h + 1
    h.add_(1)
    text = error(lambda: bp.vjp(z, h))
    assert "x was modified in place after it had been used (version 1)" in text and "clone()" in text


def test_wrong_cotangents_and_sizes() -> None:
    x, _, y = small()
    assert "v has shape [2] where y has [3, 5]" in error(lambda: bp.vjp(y, x, torch.ones(2)))
    assert "u has 2 tensors where x has 1" in error(lambda: bp.jvp(y, x, [x, x]))
    assert "[number of products, 3, 5]" in error(lambda: bp.linearize(y, x).vjps(torch.ones(3, 5)))
    text = error(lambda: bp.jacobian(y, x, max_bytes=100))
    assert "15 x 12 and needs 1.41 KiB, more than max_bytes (100 B)" in text and "bp.jacobian_norm" in text


def test_a_backward_without_a_derivative_has_no_jvp() -> None:
    q = torch.randn(1, 2, 6, 8, requires_grad=True)
    attend = nn.functional.scaled_dot_product_attention
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        y = attend(q, q, q)
    text = error(lambda: bp.jvp(y, q))
    assert "sdpa_kernel(SDPBackend.MATH)" in text and "attn_implementation='eager'" in text
    with sdpa_kernel(SDPBackend.MATH):
        z = attend(q, q, q)
    u = torch.randn_like(q)
    dense = bp.jacobian(y, q).reshape(96, 96)
    torch.testing.assert_close(bp.jvp(z, q, u).reshape(-1), dense @ u.reshape(-1), rtol=1e-4, atol=1e-5)

    class Once(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        @torch.autograd.function.once_differentiable
        def backward(ctx, g):
            return g * 2

    x = torch.randn(3, requires_grad=True)
    assert "no JVP of y with respect to x" in error(lambda: bp.jvp(Once.apply(x), x))
    torch.testing.assert_close(bp.jacobian(Once.apply(x), x), 2 * torch.eye(3))


def test_checkpoints_and_compiled_parts() -> None:
    torch.manual_seed(0)
    inner = nn.Linear(8, 8)
    x = torch.randn(2, 8, requires_grad=True)

    def noisy(t):
        return nn.functional.dropout(inner(t).tanh(), 0.5)

    y = checkpoint(noisy, x * 1, use_reentrant=False)
    state = torch.get_rng_state()
    dense = rows(y, x)
    torch.testing.assert_close(bp.jvp(y, x).reshape(-1), dense.sum(1))
    norm = bp.jacobian_norm(y, x)  # it draws random numbers again: not in a batch
    assert math.isclose(float(norm), float(dense.norm()), rel_tol=1e-5) and "one by one" in norm.note
    assert torch.equal(state, torch.get_rng_state())
    assert "use_reentrant=False" in error(lambda: bp.vjp(checkpoint(noisy, x * 1, use_reentrant=True), x))
    y = torch.compile(nn.Sequential(inner, nn.Tanh()), backend="aot_eager")(x)
    torch.testing.assert_close(bp.jacobian(y, x).reshape(16, 16), rows(y, x))
    assert "does not currently support double backward" in error(lambda: bp.jvp(y, x))


def test_a_backward_that_is_not_linear_is_noticed() -> None:
    x = torch.randn(6, requires_grad=True)
    h = x * 2
    h.register_hook(lambda g: g.clamp(-0.1, 0.1))
    assert "is not the Jacobian" in error(lambda: bp.jvp(h.tanh(), x))

    class Outside(torch.autograd.Function):
        """Computes its backward where autograd does not see it."""

        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return g.detach() * 2

    assert "is not the Jacobian" in error(lambda: bp.jvp(Outside.apply(x), x))


def test_a_deep_graph_that_is_not_connected_is_walked_and_freed() -> None:
    script = (
        "import torch, backprobe as bp\n"
        "x = torch.zeros(1, requires_grad=True); y = x\n"
        "for _ in range(120_000): y = y + 1\n"
        "try: bp.vjp(y, torch.zeros(1, requires_grad=True))\n"
        "except bp.BackprobeError as e: print(e)\n"
        "print(bp.vjp(y, x)); del y; print('freed')\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    assert "has 120001 nodes" in done.stdout and "freed" in done.stdout


def test_the_jacobian_of_one_number_by_one_number() -> None:
    x = torch.tensor(3.0, requires_grad=True)
    assert torch.equal(bp.jacobian(x * x, x), torch.tensor(6.0))


@pytest.mark.parametrize("shape", [(3, 60), (60, 3)])
def test_the_jacobian_tells_how_far_it_is(shape, monkeypatch) -> None:
    told = []
    monkeypatch.setattr(
        "backprobe.user_tools.derivatives.progress.Progress.advance", lambda self, count: told.append(count)
    )
    x = torch.randn(shape[1], requires_grad=True)
    y = torch.tanh(torch.randn(shape) @ x)
    torch.testing.assert_close(bp.jacobian(y, x, chunk=2, progress=True), rows(y, x).reshape(shape))
    assert len(told) > 1 and sum(told) == shape[0]
