"""Replay: a backward in Python with the engine's bits, forwards and back, by rules, and in float64."""

from __future__ import annotations

import gc
import warnings
import weakref

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from stepping import Cube, Fails, Net, Noisy
from test_debug import hooks_left
from test_generated import programs
from test_generated import run as run_program
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

import backprobe
from backprobe import BackprobeError
from backprobe.engine.difference import bitwise_equal
from backprobe.graphs.order import ReadyQueue
from backprobe.torchside import modes


def net() -> tuple[nn.Sequential, torch.Tensor]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 3))
    return model, torch.randn(6, 4, requires_grad=True)


def engine(tensors, grad_tensors=None, create_graph=False) -> dict:
    """What the engine's own backward adds to ``.grad`` of every leaf, from ``.grad`` None."""
    leaves = leaves_of(tensors)
    kept = [leaf.grad for leaf in leaves]
    for leaf in leaves:
        leaf.grad = None
    state = torch.get_rng_state()
    torch.autograd.backward(tensors, grad_tensors, retain_graph=True, create_graph=create_graph)
    torch.set_rng_state(state)
    found = {leaf: leaf.grad for leaf in leaves if leaf.grad is not None}
    for leaf, grad in zip(leaves, kept, strict=True):
        leaf.grad = grad
    return found


def leaves_of(tensors) -> list[torch.Tensor]:
    stack = [private_node(t) for t in (tensors if isinstance(tensors, (list, tuple)) else [tensors])]
    seen, found = set(), []
    while stack:
        node = stack.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if hasattr(node, "variable"):
            found.append(node.variable)
        stack += [child for child, _ in node.next_functions]
    return found


def private_node(tensor):
    return torch.autograd.graph.get_gradient_edge(tensor).node


def assert_agrees(tensors, grad_tensors=None, **how) -> backprobe.Replay:
    """A replay whose gradients and nodes are the engine's, bit for bit, and in its order."""
    expected = engine(tensors, grad_tensors, how.get("create_graph", False))
    state = torch.get_rng_state()
    replay = backprobe.replay(tensors, grad_tensors, **how)
    found = replay.finish()
    assert torch.equal(torch.get_rng_state(), state)
    assert set(found) == set(expected)
    assert all(bitwise_equal(found[leaf], expected[leaf]) for leaf in expected)
    parity = replay.compare()
    assert parity.identical, str(parity)
    assert parity.same_order
    assert len(parity.nodes) == replay.position > 0
    return replay


# With the engine's bits


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


class Pair(torch.autograd.Function):
    """Arguments that are no tensors, several outputs (one integer), ``None`` gradients kept."""

    @staticmethod
    def forward(ctx, scale, x, name, y):
        ctx.set_materialize_grads(False)
        ctx.scale = scale
        index = x.argmax()
        ctx.mark_non_differentiable(index)
        return x * scale, y.exp(), index

    @staticmethod
    def backward(ctx, a, b, c):
        return None, None if a is None else a * ctx.scale, None, b


class Nothing(torch.autograd.Function):
    """Gives no gradient at all."""

    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, g):
        return None


@pytest.mark.parametrize("first", [True, False])
def test_custom_functions(first) -> None:
    x, y = torch.randn(3, requires_grad=True), torch.randn(3, requires_grad=True)
    a, b, _ = Pair.apply(2.5, x.sin(), "name", y * 1)
    assert_agrees(((a if first else b) * 3).sum())
    assert_agrees([a.sum(), (a * b).sum()])


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


# Forwards and back


def test_steps_and_breakpoints_are_the_debuggers() -> None:
    model, x = net()
    with backprobe.trace(model):
        loss = model(x.detach()).square().mean()
        replay = backprobe.replay(loss)
        dbg = backprobe.debug(loss, retain_graph=True)
    while True:
        assert (replay.stop is None) == (dbg.stop is None)
        if dbg.stop is None:
            break
        assert (replay.node, replay.stop.phase, replay.stop.path) == (dbg.node, dbg.stop.phase, dbg.stop.path)
        assert replay.graph() == dbg.graph()
        assert all(map(bitwise_equal, replay.stop.gradients, dbg.stop.gradients))
        replay.step("into")
        dbg.step("into")
    replay.goto(0)
    assert replay.until(module="1").node.name == "ReluBackward0"
    replay.break_at(parameter="0.bias")
    assert replay.cont().node.parameter == "0.bias"
    assert replay.cont() is None


def test_back_and_on_with_another_gradient() -> None:
    model, x = net()
    loss = model(x).square().mean()
    expected = engine(loss)
    replay = backprobe.replay(loss, model=model)
    first = replay.until("ReluBackward0")
    old = first.grad_outputs[0].clone()
    position = replay.position
    replay.step()
    replay.step("after")
    assert replay.back(2).node.name == "ReluBackward0"
    assert replay.position == position
    assert torch.equal(replay.grad_outputs[0], old)
    replay.replace(lambda g: g * 2)
    replay.finish()
    for name, p in model.named_parameters():
        factor = 1 if name.startswith("4") else 2
        torch.testing.assert_close(replay.grads[p], expected[p] * factor)
    assert [n.node.name for n in replay.compare().nodes if n.reason] == ["ReluBackward0"]
    assert replay.back().node.name == "ReluBackward0"  # the stop before the end
    replay.finish()
    assert all(bitwise_equal(replay.grads[leaf], expected[leaf]) for leaf in expected)
    assert replay.compare().identical


def test_goto_everywhere_and_back_gives_the_same_bits() -> None:
    torch.manual_seed(0)
    model = Net()
    loss = model(torch.randn(4, 6)).square().mean()
    expected = engine(loss)
    replay = backprobe.replay(loss)
    count = len(replay.stop.waiting)
    for position in (7, 3, count - 1, 0, 12, 12, 5):
        stop = replay.goto(position)
        assert (replay.position, stop.phase) == (position, "before")
        assert len(stop.ran) == position
    ran = [r.node for r in replay.runs]
    replay.finish()
    assert all(bitwise_equal(replay.grads[leaf], expected[leaf]) for leaf in expected)
    assert [r.node for r in replay.runs][:5] == ran
    with pytest.raises(BackprobeError, match=rf"goto\({count}\): this backward runs {count} nodes, 0 to {count - 1}"):
        replay.goto(count)


def test_going_back_runs_nothing_and_draws_the_same_numbers_again() -> None:
    x = torch.randn(3, requires_grad=True)
    calls = []
    y = Noisy.apply(x.sin())
    y.register_hook(lambda g: calls.append(1))
    replay = backprobe.replay(Noisy.apply(y).sum())
    first = replay.finish()[x].clone()
    assert len(calls) == 1
    replay.goto(3)
    assert len(calls) == 1
    torch.rand(5)
    assert torch.equal(replay.finish()[x], first)
    replay.goto(0)
    assert torch.equal(replay.finish()[x], first)
    assert len(calls) == 2
    assert replay.compare().identical


def test_back_to_after_a_node_forgets_what_was_replaced_there() -> None:
    x = torch.randn(3, requires_grad=True)
    replay = backprobe.replay(x.sin().exp().sum())
    replay.step("after")
    replay.replace(5.0)
    replay.step()
    assert replay.grad_outputs[0].tolist() == [5.0] * 3
    stop = replay.back()
    assert (stop.phase, stop.node.name) == ("after", "SumBackward0")
    assert stop.grad_inputs[0].tolist() == [1.0] * 3
    replay.finish()
    assert replay.compare().identical
    with pytest.raises(BackprobeError, match=r"back\(9\): there are 2 earlier stops to go back to"):
        replay.back(9)


def test_a_node_that_raises_can_be_gone_around() -> None:
    x = torch.randn(3, requires_grad=True)
    replay = backprobe.replay(Fails.apply(x.sin()).sum())
    with pytest.raises(ZeroDivisionError, match="no such gradient"):
        replay.finish()
    assert replay.node.name == "FailsBackward"
    replay.back()
    other = backprobe.replay(Fails.apply(x.sin()).sum(), rules={"FailsBackward": backprobe.rules.straight_through})
    assert torch.equal(other.finish()[x], x.detach().cos())


def test_a_gradient_that_a_hook_writes_into_cannot_be_gone_back_to() -> None:
    x = torch.randn(3, requires_grad=True)
    y = x.sin()
    y.register_hook(lambda g: g.mul_(2)[:0].tolist() or None)
    replay = backprobe.replay((y * 1).sum())
    replay.finish()
    with pytest.raises(BackprobeError, match="cannot go back: a hook or a rule has written into a gradient of"):
        replay.goto(2)


# Rules


def relu_by_hooks(model, x, clamp) -> torch.Tensor:
    """The independent way: full backward hooks on the ReLU modules."""
    handles = [
        m.register_full_backward_hook(lambda mod, gi, go: (clamp(gi[0], go[0]),))
        for m in model.modules()
        if isinstance(m, nn.ReLU)
    ]
    x = x.detach().clone().requires_grad_()
    model(x)[:, 1].sum().backward()
    for handle in handles:
        handle.remove()
    return x.grad


def test_guided_backpropagation_against_module_hooks() -> None:
    model, x = net()
    score = model(x)[:, 1].sum()
    plain = backprobe.replay(score).finish()[x]
    guided = backprobe.replay(score, rules={"ReluBackward0": backprobe.rules.guided}).finish()[x]
    assert torch.equal(guided, relu_by_hooks(model, x, lambda gi, go: gi.clamp(min=0)))
    assert not torch.equal(plain, guided)
    deconvnet = backprobe.replay(score, rules={"Relu*": backprobe.rules.deconvnet}).finish()[x]
    assert torch.equal(deconvnet, relu_by_hooks(model, x, lambda gi, go: go.clamp(min=0)))


def test_relevance_is_conserved_and_is_the_closed_form() -> None:
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(5, 7, bias=False), nn.ReLU(), nn.Linear(7, 4, bias=False)).double()
    x = torch.randn(3, 5, dtype=torch.float64, requires_grad=True)
    out = model(x)
    eps = 1e-9
    rules = {"MmBackward0": Linear(eps), "ReluBackward0": backprobe.rules.straight_through}
    relevance = backprobe.replay(out, out.detach(), rules=rules).finish()[x]
    torch.testing.assert_close(relevance.sum(1), out.detach().sum(1), rtol=1e-6, atol=1e-6)

    def layer(a, weight, r):
        z = a[:, None, :] * weight[None]  # what each input adds to each output
        total = z.sum(2)
        total = total + eps * torch.where(total >= 0, 1.0, -1.0)
        return (z * (r / total)[:, :, None]).sum(1)

    with torch.no_grad():
        hidden = model[1](model[0](x))
        r = layer(hidden, model[2].weight, out)
        r = layer(x, model[0].weight, r)
    torch.testing.assert_close(relevance, r)


class Linear:
    """The epsilon rule for a layer without bias, written by a user."""

    def __init__(self, eps):
        self.eps = eps

    def __call__(self, node, grads, call):
        x, weight = call.saved["self"], call.saved["mat2"]
        z = x @ weight
        back = call(grads[0] / (z + self.eps * torch.where(z >= 0, 1.0, -1.0)))
        return x * back[0], None


def test_the_epsilon_rule_for_layers_with_bias() -> None:
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(5, 7), nn.ReLU(), nn.Linear(7, 4)).double()
    x = torch.randn(3, 5, dtype=torch.float64, requires_grad=True)
    out = model(x)
    rules = {"AddmmBackward0": backprobe.rules.epsilon(1e-9), "ReluBackward0": backprobe.rules.straight_through}
    replay = backprobe.replay(out, out.detach(), rules=rules)
    found = replay.finish()[x]
    hidden = model[1](model[0](x))
    with torch.no_grad():  # what is missing is what the biases have got
        at = out / out
        biases = (at * model[2].bias).sum(1)
        r = hidden * ((out / out) @ model[2].weight)
        biases += (r / model[0](x) * model[0].bias).sum(1)
    torch.testing.assert_close(found.sum(1) + biases, out.detach().sum(1), rtol=1e-5, atol=1e-5)
    text = str(replay.compare())
    assert "it ran by rule AddmmBackward0" in text


def test_noise_is_repeatable_and_touches_no_random_state() -> None:
    model, x = net()
    loss = model(x).square().mean()
    state = torch.get_rng_state()
    noisy = {"AddmmBackward0": backprobe.rules.noise(0.1)}
    replay = backprobe.replay(loss, rules=noisy)
    first = replay.finish()[x].clone()
    assert torch.equal(state, torch.get_rng_state())
    replay.goto(0)
    assert torch.equal(replay.finish()[x], first)
    plain = engine(loss)[x]
    error = (first - plain).norm() / plain.norm()
    assert 0.02 < error < 0.5
    drawn = backprobe.rules.noise(1.0, torch.Generator().manual_seed(3))
    one = drawn(None, (torch.full((20000,), 3.0),), lambda g: (g,))[0] - 3.0
    assert abs(float(one.std()) - 3.0) < 0.1


def test_rules_by_module_and_what_they_may_give() -> None:
    model, x = net()
    with backprobe.trace(model):
        loss = model(x).square().mean()
        replay = backprobe.replay(loss, rules={"module 1": lambda node, grads, call: grads[0] * 0})
    found = replay.finish()
    assert found[x].abs().max() == 0
    assert torch.equal(found[model[4].weight], engine(loss)[model[4].weight])
    for rules, text in (
        ({"Relu*": lambda n, g, c: (g[0], g[0])}, "gave 2 gradients; the node has 1 inputs"),
        ({"Relu*": lambda n, g, c: 3}, "'int' object is not iterable"),
        ({"Relu*": lambda n, g, c: ("x",)}, "gave a str for input 0"),
        ({"Relu*": 3}, "the rule for 'Relu\\*' is a int; it is a function"),
        ({"Tanh*": backprobe.rules.guided}, "no node type fits 'Tanh\\*'"),
        ({"norm > 3": backprobe.rules.guided}, "cannot have a condition"),
        ({"param *": backprobe.rules.guided}, "accumulators only"),
        (3, "rules is a int"),
    ):
        with pytest.raises((BackprobeError, TypeError), match=text):
            backprobe.replay(loss, rules=rules, model=model).finish()
    with pytest.raises(RuntimeError, match="invalid gradient at index 0"):
        backprobe.replay(loss, rules={"Relu*": lambda n, g, c: g[0][:, :3]}).finish()


# Float64


def test_a_whole_backward_in_float64() -> None:
    """Held against the same model in float64, whose saved tensors are those of the float32 one."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(1, 3, 3, bias=False), nn.BatchNorm2d(3), nn.GELU(), nn.Flatten(), nn.Linear(48, 4))
    x = torch.randn(5, 1, 6, 6)
    loss = nn.functional.cross_entropy(model(x), torch.tensor([0, 1, 2, 3, 0]))
    replay = backprobe.replay(loss, dtype=torch.float64)
    wide = replay.finish()
    assert replay.notes == []
    double = nn.Sequential(
        nn.Conv2d(1, 3, 3, bias=False), nn.BatchNorm2d(3), nn.GELU(), nn.Flatten(), nn.Linear(48, 4)
    ).double()
    double.load_state_dict(model.state_dict())
    double[1].reset_running_stats()
    exact = nn.functional.cross_entropy(double(x.double()), torch.tensor([0, 1, 2, 3, 0]))
    exact.backward()
    narrow = engine(loss)
    for p, q in zip(model.parameters(), double.parameters(), strict=True):
        assert wide[p].dtype is torch.float64
        torch.testing.assert_close(wide[p], q.grad, rtol=1e-4, atol=1e-6)
        torch.testing.assert_close(wide[p].float(), narrow[p], rtol=1e-3, atol=1e-6)
    assert not replay.compare().identical
    assert replay.compare().worst.error < 1e-4
    replay.accumulate()
    assert all(p.grad.dtype is torch.float32 for p in model.parameters())
    assert hooks_left(loss) == 0


def test_the_rounding_error_of_each_node() -> None:
    torch.manual_seed(0)
    x = torch.randn(200, dtype=torch.bfloat16, requires_grad=True)
    loss = (x.exp() * x).sin().sum()
    replay = backprobe.replay(loss)
    replay.finish()
    rows = {row.node.name: row for row in replay.rounding().nodes}
    assert rows["SumBackward0"].status == "identical"
    assert 1e-4 < rows["MulBackward0"].error < 1e-2  # bfloat16 keeps eight bits
    mul = next(r for r in replay.runs if r.node.name == "MulBackward0")
    exact = mul.grad_outputs[0].double() * x.detach().exp().double()
    other = mul.grad_outputs[0].double() * x.detach().double()
    near = mul.grad_inputs[0].double() - other
    off = torch.cat([near, mul.grad_inputs[1].double() - exact]).norm() / torch.cat([other, exact]).norm()
    worst = float(off)
    assert rows["MulBackward0"].error == pytest.approx(worst, rel=1e-9)
    assert f"off by {worst:.2g}" in str(rows["MulBackward0"])


class Writes(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.kept = torch.ones(3)
        return x * 1

    @staticmethod
    def backward(ctx, g):
        return ctx.kept.add_(g)


def test_what_cannot_run_in_float64_says_why_and_runs_as_it_is() -> None:
    from torch.utils.checkpoint import checkpoint

    x = torch.randn(3, requires_grad=True)
    y = checkpoint(torch.sin, x, use_reentrant=False)
    y = Noisy.apply(y)
    y = Writes.apply(y)
    y = nn.functional.dropout(y, 0.5)
    y = Pair.apply(2.0, y, "", y)[0]
    loss = y.sum()
    replay = backprobe.replay(loss, dtype=torch.float64)
    assert replay.finish()[x].dtype is torch.float64
    notes = "\n".join(replay.notes)
    assert "SinBackward0 cannot be run in float64: its saved tensor 'self' lies behind a saved-tensor hook" in notes
    assert "NoisyBackward cannot be run in float64: aten.rand_like.default draws random numbers" in notes
    assert "WritesBackward cannot be run in float64: aten.add_.Tensor writes into a tensor that was there" in notes
    assert len(replay.notes) == 3
    again = backprobe.replay(loss)
    again.finish()
    reasons = {row.node.name for row in again.rounding().not_compared}
    assert reasons == {"SinBackward0", "NoisyBackward", "WritesBackward"}


@pytest.mark.parametrize("asked", [False, True])
def test_hooks_run_in_float64_and_are_said(asked: bool) -> None:
    """Of each kind one, each once: a gradient with and without them differs by factors."""
    x = torch.randn(5, requires_grad=True)
    y = x.exp()
    z = Pair.apply(2.0, y.sin(), "", y)[0]
    calls: list[str] = []

    def times(factor: float, name: str):
        def hook(*grads):
            calls.append(name)
            return grads[0] * factor if isinstance(grads[0], torch.Tensor) else (grads[0][0] * factor, *grads[0][1:])

        return hook

    x.register_hook(times(3.0, "leaf"))
    y.register_hook(times(0.1, "tensor"))
    y.register_hook(lambda g: calls.append("looks"))
    y.grad_fn.register_prehook(times(5.0, "node before"))
    z.grad_fn.next_functions[0][0].register_hook(times(7.0, "node after"))
    node = torch.autograd.graph.get_gradient_edge(x).node
    node.register_prehook(times(2.0, "accumulator"))
    loss = z.sum()
    inputs = [y, x] if asked else None
    there = backprobe.replay(loss, inputs=inputs).finish()
    once = [*calls]
    calls.clear()
    replay = backprobe.replay(loss, inputs=inputs, dtype=torch.float64)
    found = replay.finish()
    assert sorted(calls) == sorted(once) and len(set(once)) >= 5
    for key, grad in there.items():
        torch.testing.assert_close(found[key], grad.double(), rtol=1e-6, atol=0)
    assert len(replay.notes) >= 2
    assert all("a hook changed its gradient, in its own precision" in note for note in replay.notes)


def test_hooks_that_only_look_leave_float64_as_it_is() -> None:
    x = torch.randn(50, requires_grad=True)
    y = x.exp()
    loss = y.sin().sum()
    exact = backprobe.replay(loss, dtype=torch.float64).finish()[x]
    seen = []
    y.register_hook(lambda g: seen.append(g.dtype))
    y.grad_fn.register_hook(lambda made, came: seen.append(made[0].dtype))
    replay = backprobe.replay(loss, dtype=torch.float64)
    assert torch.equal(replay.finish()[x], exact)
    assert replay.notes == [] and seen == [torch.float32, torch.float32]


def test_a_node_with_hooks_of_its_own_has_no_rounding_of_its_own() -> None:
    x = torch.randn(5, requires_grad=True)
    y = x.exp()
    y.grad_fn.register_hook(lambda made, came: (made[0] * 2,))
    replay = backprobe.replay(y.sum())
    replay.finish()
    (row,) = replay.rounding().not_compared
    assert row.node.name == "ExpBackward0" and "a hook of its own" in row.reason


def test_rerun_in_float64_at_a_stop() -> None:
    x = torch.randn(50, requires_grad=True)
    dbg = backprobe.debug(x.exp().sin().sum())
    dbg.step()
    dbg.step("after")
    again = dbg.rerun(dtype=torch.float64)
    assert again.grad_inputs[0].dtype is torch.float64
    exact = x.detach().exp().double().cos()
    torch.testing.assert_close(again.grad_inputs[0], exact, rtol=1e-14, atol=0)
    assert again.error == pytest.approx(float((dbg.grad_inputs[0].double() - exact).norm() / exact.norm()))
    assert 0 < again.error < 1e-6
    with pytest.raises(BackprobeError, match=r"dtype is torch.float16; it is torch.float64, or None"):
        dbg.rerun(dtype=torch.float16)
    with pytest.raises(BackprobeError, match=r"gradient 0 for SinBackward0 has the shape \[2\]; its output has \[50\]"):
        dbg.rerun([torch.ones(2)])
    with pytest.raises(BackprobeError, match="gradient 0 for SinBackward0 is a int"):
        dbg.rerun([3])
    dbg.finish()


def test_rerun_of_functions_whose_arguments_are_no_tensors() -> None:
    x, y = torch.randn(3, requires_grad=True), torch.randn(3, requires_grad=True)
    a, b, _ = Pair.apply(2.0, x, "name", y)
    for root in (a, b, a + b):
        dbg = backprobe.debug(root.sum(), retain_graph=True)
        dbg.until("PairBackward")
        dbg.step("after")
        again = dbg.rerun()
        assert again.same, again
        assert len(again.grad_inputs) == 2
        dbg.finish()


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


def test_a_long_chain_takes_time_in_proportion() -> None:
    x = torch.ones(2, requires_grad=True)
    y = x
    for _ in range(3000):
        y = y * 1.0001
    replay = backprobe.replay(y.sum())
    assert torch.equal(replay.finish()[x], engine(y.sum())[x])
    assert replay.position == 3002
