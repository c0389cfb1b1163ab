"""Functions called with the gradients of several tensors: when, how often and with what, compared with torch's own."""

from __future__ import annotations

import gc
import threading
import weakref

import pytest
import torch
from torch import nn
from torch.autograd import grad

import backprobe as bp
from backprobe.basics.errors import BackprobeError

torch.set_num_threads(1)


def leaf(*values: float) -> torch.Tensor:
    return torch.tensor(values, requires_grad=True)


def shown(grads):
    return [None if g is None else g.tolist() for g in grads]


def test_as_torch_does_where_torch_is_right():
    """The example in the documentation of ``register_multi_grad_hook``."""
    a, b = leaf(1.0, 2.0), leaf(3.0, 4.0)
    c, d = a * b, a * b
    ours, theirs = [], []
    with bp.register_multi_grad_hook((a, b, c, d), lambda grads: ours.append(shown(grads))):
        handle = torch.autograd.graph.register_multi_grad_hook((a, b, c, d), lambda grads: theirs.append(shown(grads)))
        c.sum().backward(retain_graph=True)
        c.sum().backward(inputs=(a,), retain_graph=True)
        (c + d).sum().backward(retain_graph=True)
        handle.remove()
    assert ours == theirs
    assert ours[1] == [[3.0, 4.0], None, [1.0, 1.0], None]
    c.sum().backward()
    assert len(ours) == 3


def test_called_as_soon_as_the_last_gradient_is_there():
    order = []
    x = leaf(1.0)
    h1 = x * 2
    h1.register_hook(lambda g: order.append("h1"))
    h2 = h1 * 3
    h2.register_hook(lambda g: order.append("h2"))
    x.register_hook(lambda g: order.append("x"))
    with bp.register_multi_grad_hook([h1, h2], lambda grads: order.append(shown(grads))):
        (h2 * 5).sum().backward()
    assert order == ["h2", "h1", [[15.0], [5.0]], "x"]


def test_one_that_will_not_come_is_not_waited_for_while_its_tensor_lives():
    order = []
    x, y = leaf(1.0), leaf(1.0)
    h, other = x * 2, y * 2
    x.register_hook(lambda g: order.append("x"))
    with bp.register_multi_grad_hook([h, other], lambda grads: order.append(shown(grads))):
        h.sum().backward(retain_graph=True)
        assert order == [[[1.0], None], "x"]
        order.clear()
        del other  # nothing is known of it: the end of the call tells
        h.sum().backward()
        assert order == ["x", [[1.0], None]]


@pytest.mark.parametrize("torchs", [True, False])
def test_a_call_inside_another(torchs):
    a, b = leaf(1.0), leaf(1.0)
    seen = []
    register = torch.autograd.graph.register_multi_grad_hook if torchs else bp.register_multi_grad_hook
    v = b * 1

    def inside(_):
        with torch.enable_grad():
            (a * 3).sum().backward()

    w = a * 1
    v2 = v * 1
    v.register_hook(inside)
    handle = register([a, b], lambda grads: seen.append(shown(grads)))
    (w + v2).sum().backward()
    handle.remove()
    if torchs:  # if this fails, torch has mended its shared count
        assert seen == [[[3.0], None]]
    else:
        assert sorted(seen, key=str) == [[[1.0], [1.0]], [[3.0], None]]


@pytest.mark.parametrize("torchs", [True, False])
def test_autograd_grad_of_parameters(torchs):
    a, b = leaf(1.0), leaf(1.0)
    seen = []
    if torchs:
        handle = torch.autograd.graph.register_multi_grad_hook([a, b], lambda grads: seen.append(shown(grads)))
        with pytest.raises(RuntimeError, match="leaf node was passed to _will_engine_execute_node"):
            grad((a * b).sum(), [a, b])
        handle.remove()
    else:
        with bp.register_multi_grad_hook([a, b], lambda grads: seen.append(shown(grads))):
            grad((a * b).sum(), [a, b])
            grad((a * b * 2).sum(), [a])
        assert seen == [[[1.0], [1.0]], [[2.0], None]]


@pytest.mark.parametrize("torchs", [True, False])
def test_graphs_are_let_go_without_removing(torchs):
    class Thing: ...

    class Mark(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, thing):
            ctx.thing = thing
            return x.clone()

        @staticmethod
        def backward(ctx, g):
            return g, None

    register = torch.autograd.graph.register_multi_grad_hook if torchs else bp.register_multi_grad_hook
    x = leaf(1.0)
    for backward in (True, False):
        thing = Thing()
        ref = weakref.ref(thing)
        y = Mark.apply(x * 2, thing)
        z = y * 3
        handle = register([y, z], lambda grads: None)
        if backward:
            z.sum().backward()
        del y, z, thing, handle
        gc.collect()
        assert (ref() is None) is not torchs


def test_a_backward_that_raises_leaves_no_gradient_behind():
    x = leaf(1.0)
    h = x * 2
    late = x * 1
    kept = []

    def note(g):
        kept.append(weakref.ref(g))

    def fails(g):
        raise KeyError("mine")

    seen = []
    with bp.register_multi_grad_hook([h, late], seen.append):
        h.register_hook(note)
        late.register_hook(fails)
        with pytest.raises(KeyError, match="mine"):
            (late * 1 + h).sum().backward(retain_graph=True)
    assert seen == []
    gc.collect()
    assert [r() for r in kept] == [None] * len(kept)


def test_an_undefined_gradient_is_none():
    x = leaf(1.0, 2.0)
    a, b = (x * 1).unbind()
    seen = []
    with bp.register_multi_grad_hook({"a": a, "b": b}, seen.append):
        (b * 3).backward()
    assert seen == [{"a": None, "b": torch.tensor(3.0)}]


def test_any_is_called_once_a_call_with_the_first():
    x = leaf(1.0)
    h1 = x * 2
    h2 = h1 * 3
    first, named = [], []
    with (
        bp.register_multi_grad_hook([h1, h2], lambda g: first.append(g.item()), mode="any"),
        bp.register_multi_grad_hook({"h1": h1, "h2": h2}, named.append, mode="any"),
    ):
        (h2 * 5).sum().backward(retain_graph=True)
        (h1 * 7).sum().backward()
    assert first == [5.0, 7.0]
    assert named == [{"h2": torch.tensor([5.0])}, {"h1": torch.tensor([7.0])}]


def test_names_of_a_model():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1))
    model[0].weight.requires_grad_(False)
    seen = []
    with bp.register_multi_grad_hook(model, seen.append):
        model(torch.randn(5, 3)).sum().backward()
        with bp.register_multi_grad_hook(model, seen.append, select="*.bias"):
            model.zero_grad()
            model(torch.randn(5, 3)).sum().backward()
    assert list(seen[0]) == ["0.bias", "2.weight", "2.bias"]
    assert sorted(map(tuple, seen[1:])) == [("0.bias", "2.bias"), ("0.bias", "2.weight", "2.bias")]
    assert all(torch.equal(g, model.get_parameter(name).grad) for name, g in {**seen[1], **seen[2]}.items())


def test_the_same_tensor_twice_and_create_graph():
    x = leaf(2.0)
    seen = []
    with bp.register_multi_grad_hook([x, x], seen.append):
        (g,) = grad(x**3, x, create_graph=True)
        g.backward()
    assert [shown(s) for s in seen] == [[[12.0], [12.0]]] * 2
    assert seen[0][0].requires_grad
    x.grad = None


def test_threads_and_interleaved_calls():
    """Two threads in backward over the same parameters at one time, held at a barrier in the middle."""
    a, b = leaf(1.0), leaf(1.0)
    barrier = threading.Barrier(2, timeout=600)
    seen, errors = [], []

    def work(k: int) -> None:
        try:
            u, v = a * k, b * k
            v.register_hook(lambda g: (barrier.wait(), None)[1])
            grad((u * 1 + v * 1).sum(), [a, b])
        except Exception as error:
            errors.append(error)

    with bp.register_multi_grad_hook([a, b], lambda grads: seen.append(shown(grads))):
        threads = [threading.Thread(target=work, args=(k,)) for k in (2.0, 3.0)]
        [t.start() for t in threads]
        [t.join() for t in threads]
    assert not errors
    assert sorted(seen) == [[[2.0], [2.0]], [[3.0], [3.0]]]


def test_many_calls_keep_no_state():
    a, b = leaf(1.0), leaf(1.0)
    with bp.register_multi_grad_hook([a, b], lambda grads: None) as hook:
        for _ in range(50):
            (a * b).sum().backward()
            (a * 2).sum().backward()
        assert len(hook._rounds) == 0


def test_an_error_of_the_function_comes_through_with_a_note():
    x = leaf(1.0)

    def fails(grads):
        raise ZeroDivisionError("mine")

    with pytest.raises(ZeroDivisionError, match="mine") as error, bp.register_multi_grad_hook([x], fails):
        (x * 2).sum().backward()
    assert error.value.__notes__ == ["backprobe: in fails, which register_multi_grad_hook calls"]
    assert not x._backward_hooks
    (x * 2).sum().backward()


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: bp.register_multi_grad_hook([leaf(1.0)], print, mode="some"), r"mode is 'some'; it is 'all' or 'any'"),
        (lambda: bp.register_multi_grad_hook([torch.ones(1)], print), r"tensor 0 does not require a gradient"),
        (lambda: bp.register_multi_grad_hook({"h": torch.ones(1)}, print), r"'h' does not require a gradient"),
        (
            lambda: bp.register_multi_grad_hook({"h": leaf(1.0)}, print, select="g"),
            r"no tensor fits 'g'; names are like 'h'",
        ),
        (lambda: bp.register_multi_grad_hook([leaf(1.0)], print, select="g"), r"select chooses names"),
        (lambda: bp.register_multi_grad_hook([], print), r"no tensor fits everything; there is none"),
        (lambda: bp.register_multi_grad_hook([leaf(1.0)], None), r"the function is a NoneType"),
        (lambda: bp.register_multi_grad_hook([3], print), r"tensor 0 is a int, not a tensor"),
    ],
)
def test_wrong_use(call, text):
    with pytest.raises(BackprobeError, match=text):
        call()
