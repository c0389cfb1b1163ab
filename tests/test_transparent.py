"""Promise 1: a script behaves exactly as without us."""

from __future__ import annotations

import doctest
import weakref

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint
from watching import alone_and_watched, same

import backprobe
from backprobe.observe import live as tracing


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return 2 * x * g


def grads(model):
    return [None if p.grad is None else p.grad.clone() for p in model.parameters()]


def trainer(model, loss):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)

    def step():
        optimizer.zero_grad()
        value = loss()
        value.backward()
        found = grads(model)
        optimizer.step()
        return [value.detach(), found, [p.detach().clone() for p in model.parameters()]]

    return step


def mlp():
    model, x = (
        nn.Sequential(nn.Linear(6, 8), nn.ReLU(inplace=True), nn.Dropout(0.5), nn.Linear(8, 3)),
        torch.randn(5, 6),
    )
    return trainer(model, lambda: F.cross_entropy(model(x), torch.tensor([0, 1, 2, 0, 1])))


def convnet():
    model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(inplace=True), nn.Flatten(), nn.Linear(144, 2))
    x = torch.randn(3, 1, 8, 8)
    return trainer(model, lambda: model(x).square().mean())


def transformer():
    model = nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 2, 32, batch_first=True), 2)
    x = torch.randn(2, 5, 16)
    return trainer(model, lambda: model(x).square().mean())


def lstm():
    model, x = nn.LSTM(4, 6, 2), torch.randn(7, 2, 4)
    return trainer(model, lambda: model(x)[0].square().mean())


def tied():
    embed, head = nn.Embedding(11, 6), nn.Linear(6, 11, bias=False)
    head.weight = embed.weight
    model, x = nn.Sequential(embed, nn.Tanh(), head), torch.randint(0, 11, (9,))
    return trainer(model, lambda: F.cross_entropy(model(x), x))


def shared_nodes_and_two_roots():
    a, b = torch.randn(4, requires_grad=True), torch.randn(4, requires_grad=True)

    def step():
        a.grad = b.grad = None
        y = torch.sin(a * b)
        z = (y + y * a).exp()
        torch.autograd.backward([y.sum(), z], [None, torch.ones(4)])
        return [a.grad, b.grad]

    return step


def in_place():
    a = torch.randn(5, requires_grad=True)

    def step():
        a.grad = None
        y = a * 2
        y[1:3] += 1
        y.mul_(3)
        y.view(5)[0].neg_()
        y.relu_()
        y.sum().backward()
        return a.grad

    return step


def custom_function():
    model = nn.Linear(3, 3)
    x = torch.randn(2, 3)
    return trainer(model, lambda: Square.apply(model(x)).sum())


def checkpointed(reentrant):
    def make():
        block = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.3), nn.Tanh())
        head = nn.Linear(4, 1)
        model, x = nn.ModuleList([block, head]), torch.randn(6, 4, requires_grad=True)
        return trainer(model, lambda: head(checkpoint(block, x, use_reentrant=reentrant)).sum())

    return make


def double_backward():
    model, x = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1)), torch.randn(5, 3, requires_grad=True)

    def loss():
        y = model(x).sum()
        (g,) = torch.autograd.grad(y, x, create_graph=True)
        return y + (g.norm(dim=1) - 1).square().mean()

    return trainer(model, loss)


def only_some_inputs():
    a, b = torch.randn(3, requires_grad=True), torch.randn(3, requires_grad=True)

    def step():
        a.grad = b.grad = None
        y = a * b
        z = y.exp()
        z.sum().backward(inputs=[a], retain_graph=True)
        first = a.grad.clone()
        got = torch.autograd.grad(z.sum(), [y, b], retain_graph=True)
        none = torch.autograd.grad(y.sum(), [a, torch.ones(1, requires_grad=True)], allow_unused=True)
        return [first, b.grad is None, list(got), none[0], none[1] is None]

    return step


def batched():
    x = torch.randn(3, requires_grad=True)

    def step():
        y = x * x.sum()
        return torch.autograd.grad(y, x, torch.eye(3), is_grads_batched=True)[0]

    return step


def parameters_swapped():
    """``Module.to`` and ``load_state_dict`` that give parameters new content instead of new data."""
    model, x = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1)), torch.randn(5, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    swaps = iter((None, lambda: model.to(torch.float64), None, lambda: model.load_state_dict(dict(model.state_dict()))))

    def step():
        optimizer.zero_grad()
        value = model(x.to(model[0].weight.dtype)).square().mean()
        value.backward()
        optimizer.step()
        found = [value.detach(), grads(model), [p.detach().clone() for p in model.parameters()]]
        swap = next(swaps, None)
        del value
        if swap is not None:
            torch.__future__.set_swap_module_params_on_conversion(True)
            try:
                swap()
            finally:
                torch.__future__.set_swap_module_params_on_conversion(False)
        return found

    return step


def functional():
    def step():
        x = torch.arange(3.0)
        jac = torch.func.jacrev(lambda v: torch.sin(v).log1p())(x)
        per = torch.func.vmap(torch.func.grad(lambda v: (v * v).sum()))(torch.ones(4, 3))
        return [jac, per, torch.autograd.functional.hessian(lambda v: (v**3).sum(), x)]

    return step


def hooks_that_change():
    model = nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 1))
    x = torch.randn(4, 3)
    order = []
    model[0].weight.register_hook(lambda g: g * 2)
    model[0].weight.register_post_accumulate_grad_hook(lambda p: order.append("post"))
    model[2].register_full_backward_hook(lambda m, gi, go: order.append("full"))

    def loss():
        h = model[1](model[0](x))
        h.register_hook(lambda g: order.append("h") or g.clamp(min=0))
        h.grad_fn.register_hook(lambda gi, go: order.append("node"))
        h.grad_fn.register_prehook(lambda go: order.append("pre") or (go[0] * 1.5,))
        h.retain_grad()
        return model[2](h).sum()

    step = trainer(model, loss)
    return lambda: (order.clear(), step(), list(order))[1:]


def sparse():
    model = nn.Embedding(10, 3, sparse=True)
    x = torch.tensor([1, 4, 4])

    def step():
        model.zero_grad()
        model(x).square().sum().backward()
        return model.weight.grad

    return step


def complex_values():
    a = torch.randn(3, dtype=torch.complex64, requires_grad=True)

    def step():
        a.grad = None
        (a * a.conj()).real.sum().backward()
        return a.grad

    return step


def autocast():
    model, x = nn.Linear(4, 4), torch.randn(2, 4)

    def loss():
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return model(x).relu().float().sum()

    return trainer(model, loss)


def accumulation():
    model, x = nn.Linear(4, 1), torch.randn(6, 4)
    optimizer = torch.optim.Adam(model.parameters())

    def step():
        optimizer.zero_grad()
        for part in x.chunk(3):
            (model(part).square().mean() / 3).backward()
        optimizer.step()
        return grads(model)

    return step


def lbfgs():
    model, x = nn.Linear(4, 1), torch.randn(6, 4)
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=4)

    def closure():
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        return loss

    return lambda: [optimizer.step(closure).detach(), grads(model)]


MAKERS = {
    f.__name__: f
    for f in (
        *(mlp, convnet, transformer, lstm, tied, shared_nodes_and_two_roots, in_place, custom_function),
        *(double_backward, only_some_inputs, batched, functional, hooks_that_change, sparse, complex_values),
        *(autocast, accumulation, lbfgs, parameters_swapped),
    )
} | {"checkpoint_reentrant": checkpointed(True), "checkpoint": checkpointed(False)}


@pytest.mark.parametrize("name", MAKERS)
def test_results_are_bitwise_the_same(name: str) -> None:
    alone, seen, trace = alone_and_watched(MAKERS[name])
    assert same(alone, seen)
    assert trace.findings == []
    if name != "functional":
        assert any(run.order is not None for call in trace.backwards for run in call.nodes)


@pytest.mark.parametrize("name", ["mlp", "hooks_that_change", "checkpoint_reentrant", "accumulation"])
def test_every_detail_of_the_node_records_holds(name: str) -> None:
    """Each parameter's last gradient, as recorded at its accumulator, has the norm of what autograd gave."""
    _, _, trace = alone_and_watched(MAKERS[name])
    for call in trace.backwards:
        for run in call.nodes:
            if run.order is not None and run.grad_outputs and run.grad_outputs[0] is not None:
                assert run.grad_outputs[0].norm is not None
        orders = sorted(r.order for r in call.nodes if r.order is not None)
        assert orders == list(range(len(orders)))


def test_a_swap_of_tensors_respects_weak_references_of_others() -> None:
    first, second = torch.ones(2), torch.zeros(2)
    ref = weakref.ref(first)
    with backprobe.trace(), pytest.raises(RuntimeError, match="Cannot swap t1 because it has weakref"):
        torch.utils.swap_tensors(first, second)
    assert ref() is first
    assert first.tolist() == [1, 1]


def test_errors_are_the_same() -> None:
    def make():
        a = torch.ones(3, requires_grad=True)
        y = a.exp()
        y.sum().backward()
        wrong = (
            lambda: y.sum().backward(),
            lambda: (a * 2).backward(),
            lambda: torch.ones(3).sum().backward(),
            lambda: (a * 2).backward(torch.ones(4)),
            lambda: torch.autograd.grad(a.sum(), torch.ones(1, requires_grad=True)),
            lambda: torch.autograd.backward(3),
            lambda: torch.autograd.grad(),
            lambda: a.sum().backward(inputs=[]),
            lambda: y.sum().backward(nonsense=1),
        )

        def step():
            texts = []
            for call in wrong:
                try:
                    call()
                    texts.append("no error")
                except Exception as error:
                    texts.append((type(error), str(error)))
            return texts

        return step

    alone, seen, _ = alone_and_watched(make, 2)
    assert alone[:-1] == seen[:-1]


def test_a_loss_times_a_complex_number_is_watched() -> None:
    """The number is not the scale of a scaler."""
    z = torch.ones((), dtype=torch.complex128, requires_grad=True)
    with backprobe.trace(budget=None) as trace:
        (z * torch.tensor(2 + 1j, dtype=torch.complex128)).backward(torch.ones((), dtype=torch.complex128))
    assert same(z.grad, torch.tensor(2 - 1j, dtype=torch.complex128))
    assert not [one for one in trace.coverage.unseen if one.what == "internal error"]
    assert [call.kind for call in trace.backwards] == ["Tensor.backward"]


def test_diagnose_reports_the_error_and_leaves_gradients_unchanged() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2))
    x = torch.randn(5, 3)
    model(x).sum().backward()
    before = [p.grad for p in model.parameters()]
    assert backprobe.diagnose(model, lambda: model(x).square().mean()) == []
    (found,) = backprobe.diagnose(model, lambda: (model(x) * 0).log().sum())
    assert (found.kind, found.sites[0].site.function) == ("nonfinite-forward", "<lambda>")

    def broken() -> torch.Tensor:
        h = model(x).sigmoid()
        h += 1
        return h.sum()

    (found,) = backprobe.diagnose(model, broken)
    assert found.kind == "inplace"
    assert all(p.grad is g for p, g in zip(model.parameters(), before, strict=True))
    loss = model(x).sum()
    assert backprobe.diagnose(model, loss) == []
    loss.backward()  # its graph was kept


def test_diagnose_raises_errors_without_a_finding() -> None:
    model = torch.nn.Linear(3, 2)
    with pytest.raises(RuntimeError, match="mat1 and mat2"):
        backprobe.diagnose(model, lambda: model(torch.ones(2, 4)).sum())
    with pytest.raises(backprobe.BackprobeError, match="loss is a float; give a tensor"):
        backprobe.diagnose(model, 1.0)
    with pytest.raises(backprobe.BackprobeError, match="unknown check speed"):
        backprobe.diagnose(model, lambda: model(torch.ones(2, 3)).sum(), checks=("speed",))
    with pytest.raises(backprobe.BackprobeError, match="the function returned a float"):
        backprobe.diagnose(model, lambda: 1.0)


def test_the_examples_in_docstrings() -> None:
    torch.manual_seed(0)  # a ReLU of two units may be dead from the start
    done = doctest.testmod(tracing)
    assert (done.failed, done.attempted > 5) == (0, True)
