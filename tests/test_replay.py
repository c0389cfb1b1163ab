"""Replay: a backward in Python with the engine's bits, in its order, and nothing else touched."""

from __future__ import annotations

import gc
import warnings
import weakref

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from replaying import Pair, assert_agrees, engine, net
from stepping import Cube, Net, hooks_left
from test_generated import programs
from test_generated import run as run_program
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

import backprobe
from backprobe import BackprobeError
from backprobe.engine.difference import bitwise_equal
from backprobe.graphs.order import ReadyQueue
from backprobe.torch_internals import modes


@pytest.mark.parametrize("again", [None, "plain"])
def test_a_model_with_noise_and_a_module_that_is_called_twice(again) -> None:
    torch.manual_seed(0)
    model = Net(again)
    loss = model(torch.randn(4, 6, requires_grad=True)).square().mean()
    replay = assert_agrees(loss, model=model)
    assert all(p.grad is None for p in model.parameters())
    assert set(replay.named_grads) >= {n for n, _ in model.named_parameters()}
    assert hooks_left(loss) == 0


def test_real_layers() -> None:
    torch.manual_seed(0)
    lstm = nn.LSTM(5, 7, 2, bidirectional=True)
    assert_agrees(lstm(torch.randn(3, 2, 5))[0].square().sum())
    encoder = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
    assert_agrees(encoder(torch.randn(2, 5, 16)).square().sum(), model=encoder)
    convnet = nn.Sequential(nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3), nn.ReLU(inplace=True), nn.MaxPool2d(2), nn.Flatten())
    assert_agrees(convnet(torch.randn(4, 2, 8, 8)).logsumexp(1).mean(), model=convnet)


def test_reentrant_checkpoints_write_no_grad_either() -> None:
    torch.manual_seed(0)
    model = Net("reentrant")
    called: list[str] = []
    model.enc[1][0].weight.register_post_accumulate_grad_hook(lambda p: called.append("after"))
    loss = model(torch.randn(4, 6, requires_grad=True)).square().mean()
    replay = backprobe.replay(loss, model=model)
    found = replay.finish()
    assert all(p.grad is None for p in model.parameters())
    assert called == []
    loss.backward(retain_graph=True)
    assert called
    for name, p in model.named_parameters():
        assert torch.equal(found[p], p.grad), name
    assert replay.compare().identical


def test_it_leaves_everything_as_it_was() -> None:
    model, x = net()
    middle = model[1](model[0](x))
    middle.retain_grad()
    loss = model[4](model[3](model[2](middle))).square().mean()
    loss.backward(retain_graph=True)
    before = [p.grad.clone() for p in model.parameters()], middle.grad.clone(), x.grad.clone()
    state = torch.get_rng_state()
    replay = backprobe.replay(loss)
    replay.finish()
    replay.compare()
    replay.rounding()
    assert all(torch.equal(p.grad, old) for p, old in zip(model.parameters(), before[0], strict=True))
    assert torch.equal(middle.grad, before[1])
    assert torch.equal(x.grad, before[2])
    assert torch.equal(state, torch.get_rng_state())
    assert hooks_left(loss) == 0
    assert modes.mode_depth() == 0
    replay.accumulate()
    assert all(torch.equal(p.grad, old + old) for p, old in zip(model.parameters(), before[0], strict=True))
    with pytest.raises(BackprobeError, match=r"added its gradients to \.grad already"):
        replay.accumulate()


def test_nothing_keeps_the_graph() -> None:
    model, x = net()
    loss = model(x).sum()
    replay = backprobe.replay(loss)
    replay.step()
    alive = weakref.ref(x)  # the graph holds it
    del x, loss, replay
    gc.collect()
    assert alive() is None


@settings(max_examples=60)
@given(programs())
def test_generated_graphs(program) -> None:
    seen: list = []

    def note(values, starts) -> None:
        if not program[4]:
            seen.append(engine(starts))
            replay = backprobe.replay(starts)
            seen.append(replay.finish())
            parity = replay.compare()
            assert parity.identical and parity.same_order, str(parity)

    run_program(program, 0, note)
    if seen:
        assert set(seen[0]) == set(seen[1])
        assert all(bitwise_equal(seen[0][leaf], seen[1][leaf]) for leaf in seen[0])


@pytest.mark.parametrize("first", [True, False])
def test_custom_functions(first) -> None:
    x, y = torch.randn(3, requires_grad=True), torch.randn(3, requires_grad=True)
    a, b, _ = Pair.apply(2.5, x.sin(), "name", y * 1)
    assert_agrees(((a if first else b) * 3).sum())
    assert_agrees([a.sum(), (a * b).sum()])


class Nothing(torch.autograd.Function):
    """Gives no gradient at all."""

    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, g):
        return None


def test_missing_gradients_go_on_as_missing() -> None:
    x, y = torch.randn(3, requires_grad=True), torch.randn(4, 2, requires_grad=True)
    replay = assert_agrees((Nothing.apply(x.sin()) + x.cos()).sum())
    assert replay.grads[x] is not None
    one, _ = y.sin().unbind(1)
    assert_agrees((one * 2).sum())
    mean, _ = torch.var_mean(y, 0)
    assert_agrees(mean.sum())
    assert assert_agrees(Nothing.apply(x.exp()).sum()).grads == {}
    assert_agrees(Nothing.apply(Cube.apply(x.exp())).sum())


def test_dtypes_layouts_and_sizes_on_the_edges() -> None:
    w = torch.randn(5, 3, requires_grad=True)
    bag = nn.Embedding(7, 5, sparse=True)
    ids = torch.tensor([1, 1, 6])
    half = (bag(ids) @ w).to(torch.bfloat16).float() + torch.randn(1, 1, requires_grad=True)
    shared = bag(torch.tensor([[2, 1]])).sum(0)
    replay = assert_agrees([half.square().mean(), shared.sum()])
    assert replay.grads[bag.weight].is_sparse
    z = torch.randn(3, dtype=torch.complex64, requires_grad=True)
    r = torch.randn(3, 1, requires_grad=True)
    assert_agrees((z * r + z.conj() / 2).abs().sum())
    v = torch.zeros(4, 4) + r.sum()
    v[1:3].mul_(r.mean())
    v[:, 0] = r[0]
    v.t_().add_(v.detach())
    assert_agrees((v * v).sum())
    assert_agrees(v, torch.randn(4, 4).t())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = nn.Linear(3, 3)(torch.randn(2, 3))
    assert_agrees(out.float().square().sum())


def test_inputs_are_as_autograd_grad_gives_them() -> None:
    x, w = torch.randn(3, requires_grad=True), torch.randn(3, requires_grad=True)
    other = torch.randn(3, requires_grad=True)
    y = x * w
    z = y.sin()
    z.register_hook(lambda g: g * 3)
    y.register_hook(lambda g: g * 2)
    x.register_hook(lambda g: g + 1)
    loss = (z * other.cos() + y).sum()
    for inputs in ([x], [y], [y, x], [z, w, x], [w, z, y], [loss, y]):
        expected = torch.autograd.grad(loss, inputs, retain_graph=True)
        replay = backprobe.replay(loss, inputs=inputs)
        found = replay.finish()
        assert [bitwise_equal(found[key], e) for key, e in zip(inputs, expected, strict=True)] == [True] * len(inputs)
        parity = replay.compare()
        assert parity.identical, (inputs, str(parity))
        assert other not in found
    stray = torch.randn(2, requires_grad=True)
    assert backprobe.replay(loss, inputs=[stray, x]).finish()[stray] is None


def test_a_graph_of_gradients() -> None:
    x = torch.randn(4, requires_grad=True)
    loss = (Cube.apply(x) * x.exp()).sum()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a graph and .grad that hold each other
        found = assert_agrees(loss, create_graph=True).grads[x]
    native = torch.autograd.grad(loss, x, create_graph=True)[0]
    second = [torch.autograd.grad(first.sum(), x, retain_graph=True)[0] for first in (found, native)]
    assert torch.equal(*second)


def test_hooks_of_every_kind_run_once_and_change_what_they_change() -> None:
    def build(order):
        torch.manual_seed(0)
        x, w = torch.randn(3, requires_grad=True), torch.randn(3, requires_grad=True)
        y = x * w
        z = y.sin()
        y.register_hook(lambda g: order.append("tensor") or g * 2)
        y.retain_grad()
        y.grad_fn.register_prehook(lambda g: order.append("before") or (g[0] + 1,))
        y.grad_fn.register_hook(lambda i, o: order.append("after") or (i[0] * 5, i[1]))
        x.register_hook(lambda g: order.append("leaf") or g - 3)
        node = y.grad_fn.next_functions[1][0]
        node.register_prehook(lambda g: order.append("accumulator before") or (g[0] * 7,))
        node.register_hook(lambda i, o: order.append("accumulator after"))
        w.register_post_accumulate_grad_hook(lambda p: order.append("accumulated"))
        return x, w, y, (z * y).sum()

    native: list[str] = []
    x, w, _, loss = build(native)
    loss.backward()
    ours: list[str] = []
    x2, w2, y2, loss2 = build(ours)
    replay = backprobe.replay(loss2)
    replay.finish()
    late = ["accumulated", "accumulator after"]
    assert ours == [o for o in native if o not in late]
    assert (x2.grad, w2.grad, y2.grad) == (None, None, None)
    replay.accumulate()
    assert ours[-2:] == late
    assert torch.equal(x2.grad, x.grad)
    assert torch.equal(w2.grad, w.grad)
    assert replay.compare().identical
    assert y2.grad is None


def test_a_hook_that_runs_a_backward_over_the_same_nodes() -> None:
    x = torch.randn(3, requires_grad=True)
    y = x.sin()
    z = y * y
    loss = z.sum()
    expected = torch.autograd.grad(loss, x, retain_graph=True)[0]
    seen: list = []

    def again(grads):
        if not seen:
            seen.append(None)
            seen.append(torch.autograd.grad(loss, x, retain_graph=True)[0])

    z.grad_fn.register_prehook(again)
    assert torch.equal(backprobe.replay(loss).finish()[x], expected)
    assert torch.equal(seen[1], expected)


def test_modes_of_the_user_see_it_and_stay() -> None:
    class Counts(TorchDispatchMode):
        count = 0

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            self.count += 1
            return func(*args, **(kwargs or {}))

    x = torch.randn(3, requires_grad=True)
    loss = Cube.apply(x).sum()
    with Counts() as mode, warnings.catch_warnings(), torch.autograd.set_detect_anomaly(True):
        replay = backprobe.replay(loss)
        replay.finish()
        assert torch.is_anomaly_enabled()
        assert mode.count > 0
    assert torch.equal(replay.grads[x], engine(loss)[x])


def test_the_order_among_equals_is_that_of_the_standard_library() -> None:
    """Forty leaves that all become ready at once, and in turns: hooks tell the engine's own order."""
    for width in (2, 5, 8, 17, 40):
        leaves = [torch.randn(2, requires_grad=True) for _ in range(width)]
        loss = (torch.cat(leaves).sum() + torch.stack(leaves[::2]).exp().sum()).log1p()
        native: list[int] = []
        handles = [leaf.register_hook(lambda g, k=k, native=native: native.append(k)) for k, leaf in enumerate(leaves)]
        loss.backward(retain_graph=True)
        for handle in handles:
            handle.remove()
        number = {id(leaf): k for k, leaf in enumerate(leaves)}
        replay = backprobe.replay(loss)
        assert [number[id(leaf)] for leaf in replay.finish()] == native


@settings(max_examples=60)
@given(st.lists(st.integers(0, 6), min_size=1, max_size=30), st.randoms(use_true_random=False))
def test_the_heap_gives_the_highest_first(seqs, random) -> None:
    ready, inside, out = ReadyQueue(seqs), [], []
    waiting = list(range(len(seqs)))
    while waiting or inside:
        if waiting and (not inside or random.random() < 0.6):
            inside.append(waiting.pop())
            ready.push(inside[-1])
        else:
            assert seqs[ready.nodes[0]] == max(seqs[i] for i in inside)
            out.append(ready.pop())
            inside.remove(out[-1])
    assert sorted(out) == list(range(len(seqs)))


def test_a_long_chain_takes_time_in_proportion() -> None:
    x = torch.ones(2, requires_grad=True)
    y = x
    for _ in range(3000):
        y = y * 1.0001
    replay = backprobe.replay(y.sum())
    assert torch.equal(replay.finish()[x], engine(y.sum())[x])
    assert replay.position == 3002


# Wrong use


def test_wrong_use_says_what_to_do() -> None:
    x = torch.randn(3, requires_grad=True)
    loss = x.exp().sum()
    for call, text in (
        (lambda: backprobe.replay(torch.randn(3)), "tensor 0 to replay from has no graph: it does not require grad"),
        (lambda: backprobe.replay(3), "tensor 0 to replay from is a int; give a tensor"),
        (lambda: backprobe.replay([]), "needs a tensor to begin with"),
        (lambda: backprobe.replay(loss, [None, None]), "2 grad_tensors were given for 1 tensors"),
        (lambda: backprobe.replay(loss, inputs=[torch.ones(2)]), "input 0 has no graph"),
        (lambda: backprobe.replay(loss, inputs=[]), "inputs is empty"),
        (lambda: backprobe.replay(loss, dtype=torch.float16), "dtype is torch.float16"),
        (lambda: backprobe.replay(loss, dtype=torch.float64, create_graph=True), "does not go with"),
        (lambda: backprobe.replay(loss).accumulate(), "before the end: finish"),
        (lambda: backprobe.replay(loss, inputs=[x]).back(), "there are 0 earlier stops"),
        (lambda: torch.func.grad(lambda y: backprobe.replay(y.sum()) and y.sum())(x.detach()), "torch.func transform"),
    ):
        with pytest.raises(BackprobeError, match=text):
            call()
    with pytest.raises(RuntimeError, match="grad can be implicitly created only for scalar outputs"):
        backprobe.replay(x.exp())
    with pytest.raises(RuntimeError, match="Mismatch in shape"):
        backprobe.replay(loss, torch.ones(2))
    over = backprobe.replay(loss)
    over.finish()
    with pytest.raises(BackprobeError, match="the replay is over"):
        over.step()
    loss.backward()
    with pytest.raises(BackprobeError, match="ExpBackward0 cannot be run: a backward has freed what it had saved"):
        backprobe.replay(loss).finish()
    assert hooks_left(loss) == 0
