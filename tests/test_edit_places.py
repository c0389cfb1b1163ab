"""Edits at module outputs and inputs, named tensors and graph nodes, against autograd by hand."""

from __future__ import annotations

import gc
import subprocess
import sys
import weakref
from collections import namedtuple
from dataclasses import dataclass

import pytest
import torch
from torch import nn
from torch.autograd import grad
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

import backprobe as bp
from backprobe import gradient_ops as ops
from backprobe.basics.errors import BackprobeError

torch.set_num_threads(1)


def triple(g):
    return g * 3


def keep_positive(g):
    return g.clamp(min=0)


def assert_grads(model: nn.Module, expected: dict[str, torch.Tensor]) -> None:
    for name, p in model.named_parameters():
        assert torch.equal(p.grad, expected[name]), name


def by_hand(model, parts, x, edited, action):
    """Gradients of ``parts[-1](...parts[0](x)).square().sum()``, with `action` on the gradient at the outputs of the
    parts numbered in `edited`: one ``autograd.grad`` for each part, nothing of ours."""
    inputs = []
    value = x
    outs = []
    for part in parts:
        inp = value.detach().clone().requires_grad_()
        inputs.append(inp)
        value = part(inp * 1)  # in-place parts may not write into a leaf
        outs.append(value)
    last = outs[-1].detach().clone().requires_grad_()
    (g,) = grad(last.square().sum(), last)
    found: dict[int, torch.Tensor] = {}
    for i in reversed(range(len(parts))):
        if i in edited:
            g = action(g)
        own = list(parts[i].parameters())
        got = grad(outs[i], [inputs[i], *own], g)
        g = got[0]
        found.update((id(p), one) for p, one in zip(own, got[1:], strict=True))
    return {name: found[id(p)] for name, p in model.named_parameters()}


class Halve(nn.Module):
    def forward(self, x):
        return x.mul_(0.5)


CHAINS = {
    "linear": lambda: nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 3)),
    "in-place": lambda: nn.Sequential(nn.Linear(4, 5), nn.ReLU(inplace=True), nn.Linear(5, 3)),
    "in-place twice": lambda: nn.Sequential(nn.Linear(4, 5), Halve(), nn.ReLU(inplace=True), nn.Linear(5, 3)),
}


@pytest.mark.parametrize("shape", [(6, 4), (2, 3, 4)], ids=["2d", "3d"])
@pytest.mark.parametrize("chain", CHAINS)
@pytest.mark.parametrize("action", [triple, keep_positive, ops.clip_norm(0.1)], ids=["triple", "positive", "clip"])
def test_outputs(chain, shape, action):
    """Three dimensions make a Linear's output a view, which an in-place activation takes out of the graph (N20)."""
    torch.manual_seed(0)
    model = CHAINS[chain]()
    x = torch.randn(shape)
    parts = list(model)
    for edited in ({0}, {1}, {0, 1}, {len(parts) - 1}):
        model.zero_grad()
        with bp.edit_gradients(model, [(str(i), action) for i in edited], where="output") as log:
            model(x).square().sum().backward()
        assert_grads(model, by_hand(model, parts, x, edited, action))
        assert log.total == len(edited)
        assert log.unused == []


def test_a_conv_lets_no_negative_gradient_in():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(1, 3, 3), nn.ReLU(inplace=True), nn.Conv2d(3, 2, 3), nn.Flatten(), nn.Linear(32, 2))
    x = torch.randn(2, 1, 8, 8)
    with bp.edit_gradients(model, lambda name, m: isinstance(m, nn.Conv2d), ops.clamp(min=0), where="output") as log:
        model(x).square().sum().backward()
    assert_grads(model, by_hand(model, list(model), x, {0, 2}, keep_positive))
    assert [str(e.place) for e in log.entries] == ["output '2'", "output '0'"]


def test_a_residual_written_into_a_view():
    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(4, 4)

        def forward(self, x):
            y = self.fc(x)
            y += x
            return y.relu()

    torch.manual_seed(0)
    block, x = Block(), torch.randn(2, 3, 4, requires_grad=True)
    assert block.fc(x)._is_view()
    with bp.edit_gradients(block, "fc", keep_positive, where="output") as log:
        block(x).square().sum().backward()
    assert log.total == 1
    y = F.linear(x, block.fc.weight, block.fc.bias).detach().requires_grad_()
    x2 = x.detach().requires_grad_()
    gy, gx = grad((y + x2).relu().square().sum(), [y, x2])
    x3 = x.detach().requires_grad_()
    gw, gb, gx3 = grad(
        F.linear(x3, block.fc.weight, block.fc.bias), [block.fc.weight, block.fc.bias, x3], gy.clamp(min=0)
    )
    assert torch.equal(block.fc.weight.grad, gw)
    assert torch.equal(block.fc.bias.grad, gb)
    torch.testing.assert_close(x.grad, gx + gx3)


def test_two_views_of_one_base_each_with_its_part():
    base = torch.randn(6, generator=torch.Generator().manual_seed(0)).requires_grad_()
    for written in ((), (0,), (1,), (0, 1)):
        h = base * 1
        views = [h[:2], h[3:]]
        with bp.edit_gradients({"a": views[0], "b": views[1]}, {"a": triple, "b": lambda g: g * 5}):
            for i in written:
                views[i].mul_(2)
            (got,) = grad((views[0] * 7).sum() + (views[1] * 11).sum() + (h[2:3] * 13).sum(), base)
        a, b = 7.0 * 3 * (2 if 0 in written else 1), 11.0 * 5 * (2 if 1 in written else 1)
        # The edit is at the view as it was named: before the in-place multiplication, linear here either way.
        assert got.tolist() == [a, a, 13.0, b, b, b]


def test_views_of_transposed_bases_and_create_graph():
    x = torch.randn(3, 4, dtype=torch.float64, requires_grad=True)
    h = (x * 1).t()
    v = h[1:3]
    with bp.edit_gradients({"v": v}, "v", lambda g: g**2):
        v.mul_(2)
        (got,) = grad((v * 3).sum() + h.sum(), x, create_graph=True)
        # d/dv after = 4, before = 8, squared 64; elsewhere 1.
        expected = torch.ones(4, 3, dtype=torch.float64)
        expected[1:3] = 64
        assert torch.equal(got, expected.t())


@dataclass
class Out:
    first: torch.Tensor
    rest: dict


Pair = namedtuple("Pair", "left right")


class Nested(nn.Module):
    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind, self.w = kind, nn.Parameter(torch.tensor([2.0, 3.0]))

    def forward(self, x):
        a, b = x * self.w, x + self.w
        return {
            "tuple": (a, (b, None)),
            "list": [a, b],
            "dict": {"a": a, "b": {"c": b}},
            "dataclass": Out(a, {"b": b}),
            "namedtuple": Pair(a, b),
            "twice": (a, a, b),
        }[self.kind]


def leaves(value):
    from backprobe.torch_internals import structure
    from backprobe.user_tools.editing.swap import spelled

    return {path: one for path, one in structure.leaves(value, spelled=spelled) if isinstance(one, torch.Tensor)}


@pytest.mark.parametrize(
    ("kind", "paths"),
    [
        ("tuple", ["[0]", "[1][0]"]),
        ("list", ["[0]", "[1]"]),
        ("dict", [".a", ".b.c"]),
        ("dataclass", [".first", ".rest.b"]),
        ("namedtuple", [".left", ".right"]),
        ("twice", ["[0]", "[2]"]),
    ],
)
def test_nested_outputs(kind, paths):
    module = Nested(kind)
    model = nn.ModuleDict({"inner": module})
    x = torch.tensor([5.0, 7.0])
    with bp.edit_gradients(model, "inner", triple, where="output") as log:
        out = leaves(module(x))
        (out[paths[0]] * 2 + out[paths[1]]).sum().backward()
    assert sorted(e.place.path for e in log.entries) == paths
    assert torch.equal(module.w.grad, 3 * (2 * x + 1))
    assert str(log.entries[0].place).startswith("output 'inner")


@pytest.mark.parametrize("kind", ["tuple", "list", "dict", "dataclass", "namedtuple", "keyword"])
def test_inputs_through_this_module_alone(kind):
    """The tensor has a second use whose gradient stays unchanged; containers are unchanged afterwards."""

    class Takes(nn.Module):
        def forward(self, value, other=None):
            found = list(leaves((value, other)).values())
            return sum(t * (k + 1) for k, t in enumerate(found))

    class Residual(nn.Module):
        def __init__(self):
            super().__init__()
            self.takes = Takes()

        def forward(self, *args, **kwargs):
            return self.takes(*args, **kwargs)

    model = Residual()
    a, b = torch.ones(2, requires_grad=True), torch.ones(2, requires_grad=True)
    ha, hb = a * 1, b * 1
    value = {
        "tuple": (ha, (hb,)),
        "list": [ha, hb],
        "dict": {"a": ha, "b": [hb]},
        "dataclass": Out(ha, {"b": hb}),
        "namedtuple": Pair(ha, hb),
        "keyword": None,
    }[kind]
    with bp.edit_gradients(model, "takes", triple, where="input") as log:
        out = model(ha, other=hb) if kind == "keyword" else model(value)
        (out + 10 * ha).sum().backward()
    assert a.grad.tolist() == [13.0, 13.0]
    assert b.grad.tolist() == [6.0, 6.0]
    assert log.total == 2
    if value is not None:
        assert all(any(t is h for h in (ha, hb)) for t in leaves(value).values())


@pytest.mark.parametrize("shape", [(3, 4), (2, 3, 4)])
def test_inputs_of_in_place_modules(shape):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(inplace=True), nn.Linear(4, 2))
    x = torch.randn(shape)
    with bp.edit_gradients(model, "1", keep_positive, where="input") as log:
        out = model(x)
        out.square().sum().backward()
    assert_grads(model, by_hand(model, list(model), x, {0}, keep_positive))
    assert log.total == 1
    assert str(log.entries[0].place) == "input '1[0]'"


def test_gradient_reversal():
    """Domain-adversarial training: the domain head learns, and what is below it learns the opposite."""
    torch.manual_seed(0)
    features, label, domain = nn.Linear(4, 6), nn.Linear(6, 2), nn.Linear(6, 2)
    model = nn.ModuleDict({"features": features, "label": label, "domain": domain})
    x = torch.randn(8, 4)
    own = list(model.parameters())

    def losses():
        h = torch.tanh(features(x))
        return label(h).square().mean(), domain(h).square().mean()

    first = grad(losses()[0], own, allow_unused=True)
    second = grad(losses()[1], own, allow_unused=True)
    with bp.edit_gradients(model, "domain", ops.reverse(0.5), where="input"):
        sum(losses()).backward()
    for p, a, b in zip(own, first, second, strict=True):
        a = torch.zeros_like(p) if a is None else a
        b = torch.zeros_like(p) if b is None else b
        torch.testing.assert_close(p.grad, a + (-0.5 * b if any(p is q for q in features.parameters()) else b))


def test_repeated_calls_are_distinguished():
    cell = nn.Linear(2, 2, bias=False)
    model = nn.ModuleDict({"cell": cell})
    x = torch.randn(1, 2)
    with bp.edit_gradients(model, "cell", lambda g: g, where="output") as log:
        h = x
        for _ in range(3):
            h = cell(h)
        h.sum().backward()
    assert [e.place.call for e in log.entries] == [3, 2, 1]
    assert [str(e.place) for e in log.entries] == ["output 'cell', call 3", "output 'cell', call 2", "output 'cell'"]


def test_one_tensor_that_is_the_output_of_several_modules_is_edited_once():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Sequential(nn.Linear(3, 3), nn.Sigmoid()), nn.Linear(3, 2))
    x = torch.randn(2, 3)
    flat = [model[0][0], model[0][1], model[1]]
    with bp.edit_gradients(model, "0*", triple, where="output") as log:
        model(x).square().sum().backward()
    assert_grads(model, by_hand(model, flat, x, {0, 1}, triple))
    assert [str(e.place) for e in log.entries] == ["output '0.1' (also '0')", "output '0.0'"]
    assert log.unused == []
    # Two edits: the outer module's first, as the gradient meets it first.
    model.zero_grad()
    with bp.edit_gradients(model, {"0.1": lambda g: g + 1, "0": triple}, where="output"):
        model(x).square().sum().backward()
    assert_grads(model, by_hand(model, flat, x, {1}, lambda g: g * 3 + 1))


def test_an_output_that_is_a_parameter():
    class Table(nn.Module):
        def __init__(self):
            super().__init__()
            self.w = nn.Parameter(torch.ones(2))

        def forward(self):
            return self.w

    model = nn.ModuleDict({"table": Table()})
    with bp.edit_gradients(model, "table", triple, where="output"):
        for _ in range(3):
            model["table"]().sum().backward()
    assert model["table"].w.grad.tolist() == [9.0, 9.0]
    assert not model["table"].w._backward_hooks


@pytest.mark.parametrize("reentrant", [True, False])
@pytest.mark.parametrize("where", ["output", "input", "node"])
def test_checkpoints(reentrant, where):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))
    x = torch.randn(3, 4, requires_grad=True)
    name = {"output": "0", "input": "1", "node": "ReluBackward0"}[where]
    with bp.edit_gradients(model, name, keep_positive, where=where) as log:
        checkpoint(model, x, use_reentrant=reentrant).square().sum().backward()
    assert_grads(model, by_hand(model, list(model), x.detach(), {0}, keep_positive))
    assert log.total == 1
    assert torch.overrides._get_current_function_mode_stack() == []


def test_why_a_module_was_not_edited():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.attention = nn.MultiheadAttention(4, 2, batch_first=True)
            self.counts = nn.Identity()
            self.lost = nn.Linear(4, 4)

        def forward(self, x):
            self.counts(torch.zeros(1))
            self.lost(x)
            return self.attention(x, x, x)[0]

    model = Model()
    with bp.edit_gradients(model, ["attention.out_proj", "counts", "lost", "attention"], triple, where="output") as log:
        model(torch.randn(2, 3, 4)).sum().backward()
    assert [str(u) for u in log.unused] == [
        "triple on output of module 'attention.out_proj': it was not called as a module",
        "triple on output of module 'counts': its output holds no tensor that needs a gradient",
        "triple on output of module 'lost': no gradient came",
    ]


def test_errors_name_the_place():
    model = nn.Sequential(nn.Linear(2, 2), nn.Tanh())
    text = r"on output '1', in backward call 1, gave shape \(1, 2\) where .* \(3, 2\)"
    with pytest.raises(BackprobeError, match=text), bp.edit_gradients(model, "1", lambda g: g[:1], where="output"):
        model(torch.ones(3, 2)).sum().backward()
    text = r"on node 'TanhBackward0', in backward call 1, gave dtype"
    with (
        pytest.raises(BackprobeError, match=text),
        bp.edit_gradients(model, "Tanh*", lambda g: g.double(), where="node"),
    ):
        model(torch.ones(3, 2)).sum().backward()
    model(torch.ones(3, 2)).sum().backward()


# Nodes


def deconv_relu(guided):
    """Guided backpropagation written as a custom function (Springenberg et al., 2015)."""

    class Guided(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x.clamp(min=0)

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return torch.where(x > 0, g, torch.zeros(())) * (g > 0)

    return Guided.apply if guided else F.relu


@pytest.mark.parametrize("side", ["in", "out"])
def test_guided_backpropagation(side):
    torch.manual_seed(0)
    model = nn.Sequential(
        *(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Conv2d(4, 4, 3), nn.ReLU(inplace=True), nn.Flatten(), nn.Linear(64, 16)),
        *(nn.ReLU(), nn.Linear(16, 3)),
    )
    image = torch.randn(2, 1, 8, 8, requires_grad=True)

    def run(relu):
        h = image
        for part in model:
            h = relu(h) if isinstance(part, nn.ReLU) else part(h)
        return h[:, 1].sum()

    (expected,) = grad(run(deconv_relu(True)), image)
    (plain,) = grad(run(deconv_relu(False)), image)
    with bp.edit_gradients(model, "ReluBackward0", ops.clamp(min=0), where="node", side=side) as log:
        (got,) = grad(model(image)[:, 1].sum(), image)
    assert torch.equal(got, expected)
    assert not torch.equal(got, plain)
    assert log.total == 3
    assert torch.equal(grad(model(image)[:, 1].sum(), image)[0], plain)
    # The same on a graph that is there already.
    out = model(image)[:, 1].sum()
    with bp.edit_gradients(out, "ReluBackward0", ops.clamp(min=0), side=side):
        assert torch.equal(grad(out, image, retain_graph=True)[0], expected)
    assert torch.equal(grad(out, image)[0], plain)


def test_only_the_nodes_of_some_modules():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Sequential(nn.Linear(3, 4), nn.ReLU()), nn.Sequential(nn.Linear(4, 4), nn.ReLU()))
    x = torch.randn(5, 3)
    flat = [*model[0], *model[1]]
    for module, edited in (("0*", {0}), ("1.1", {2}), (None, {0, 2})):
        model.zero_grad()
        with bp.edit_gradients(model, "ReluBackward0", triple, where="node", module=module) as log:
            model(x).relu().square().sum().backward()  # a ReLU outside the model
        assert_grads(model, by_hand(model, flat, x, edited, triple))
        assert log.total == len(edited)
    model.zero_grad()
    with bp.edit_gradients(None, "ReluBackward0", triple) as log:
        model(x).relu().square().sum().backward()
    assert log.total == 3


def test_nodes_in_a_training_loop_with_retained_graphs_and_nested_calls():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1))
    x = torch.randn(5, 3, requires_grad=True)
    with bp.edit_gradients(model, "ReluBackward0", triple, where="node") as log:
        loss = model(x).sum()
        loss.backward(retain_graph=True)
        first = model[0].weight.grad.clone()
        model.zero_grad()
        inner = []
        h = torch.ones(1, requires_grad=True) * 1

        def nested(g):
            inner.append(grad(loss, model[0].weight, retain_graph=True)[0])

        h.register_hook(nested)
        (loss * h).backward()  # `nested` runs after the nodes of this call are hooked, before they run
    assert torch.equal(inner[0], first)
    assert torch.equal(model[0].weight.grad, first)
    assert [e.backward for e in log.entries] == [1, 3, 2]


def test_users_hooks_see_the_edited_gradient_wherever_they_were_put():
    x = torch.ones(2, requires_grad=True)
    y = x.relu()
    seen = []
    y.grad_fn.register_prehook(lambda grads: seen.append(grads[0].tolist()))
    y.grad_fn.register_hook(lambda outs, ins: seen.append(outs[0].tolist()))
    with bp.edit_gradients(None, "ReluBackward0", triple, side="in"), bp.edit_gradients(None, "ReluBackward0", triple):
        y.sum().backward()
    assert seen == [[3.0, 3.0], [9.0, 9.0]]
    assert len(seen) == 2


def test_custom_functions_and_nodes_with_several_gradients():
    class Split(torch.autograd.Function):
        @staticmethod
        def forward(ctx, a, b):
            return a + b, a - b

        @staticmethod
        def backward(ctx, g, h):
            return g + h, g - h

    a, b = torch.ones(2, requires_grad=True), torch.ones(2, requires_grad=True)
    with bp.edit_gradients(None, "SplitBackward", [triple, lambda g: g + 1]) as log:
        s, d = Split.apply(a * 1, b * 1)
        (s + 2 * d).sum().backward()
    assert (a.grad.tolist(), b.grad.tolist()) == ([10.0, 10.0], [-2.0, -2.0])
    assert [e.place.path for e in log.entries] == ["[0]", "[0]", "[1]", "[1]"]


def test_what_names_of_nodes_there_were():
    model = nn.Linear(2, 1)
    log = bp.edit_gradients(model, "ReluBackward0", triple, where="node")
    model(torch.ones(1, 2)).sum().backward()
    log.remove()
    assert [str(u) for u in log.unused] == [
        "triple on node 'ReluBackward0': no such node in 1 backward calls; nodes are like AddmmBackward0, "
        "SumBackward0, TBackward0, torch::autograd::AccumulateGrad"
    ]


def test_a_node_that_raises_leaves_nothing_behind():
    class Fails(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, g):
            raise KeyError("mine")

    x = torch.ones(2, requires_grad=True)
    y = Fails.apply(x * 2).relu()
    node = y.grad_fn
    with pytest.raises(KeyError, match="mine"), bp.edit_gradients(None, "*", triple):
        y.sum().backward()
    assert torch.overrides._get_current_function_mode_stack() == []
    calls = []
    handle = node.register_hook(lambda *_: calls.append(1))
    assert list(handle.hooks_dict_ref()) == [handle.id]


# Undone, and beside others


def test_graphs_and_tensors_go_as_without_us():
    class Mark(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, mark):
            ctx.mark = mark
            return x.clone()

        @staticmethod
        def backward(ctx, g):
            return g, None

    class Thing: ...

    model = nn.Sequential(nn.Linear(3, 3), nn.ReLU(inplace=True), nn.Linear(3, 1))
    refs = []
    with (
        bp.edit_gradients(model, "*", triple, where="output"),
        bp.edit_gradients(model, "*", triple, where="input"),
        bp.edit_gradients(model, "*", triple, where="node"),
    ):
        for _ in range(3):
            thing = Thing()
            refs.append(weakref.ref(thing))
            out = model(Mark.apply(torch.ones(2, 2, 3, requires_grad=True) * 1, thing))
            out.sum().backward()
            refs.append(weakref.ref(out))
            del out, thing
            assert [r() for r in refs] == [None] * len(refs)
        # Without a backward too, at the latest when the collector comes.
        refs.append(weakref.ref(model(torch.ones(2, 2, 3))))
        gc.collect()
        assert refs[-1]() is None
    counts = [
        len(m._forward_hooks) + len(m._forward_pre_hooks) + len(m._forward_hooks_always_called) for m in model.modules()
    ]
    assert counts == [0] * 4


def test_hooks_on_a_graph_that_outlives_the_edit_are_gone():
    model = nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 1))
    x = torch.randn(2, 2, 3)
    expected = grad(model(x).sum(), list(model.parameters()))
    logs = [bp.edit_gradients(model, "*", triple, where=where) for where in ("output", "input")]
    out = model(x)
    for log in logs:
        log.remove()
    del logs, log
    got = grad(out.sum(), list(model.parameters()))
    assert all(torch.equal(a, b) for a, b in zip(got, expected, strict=True))


def test_a_deep_graph_does_not_crash():
    script = (
        "import torch, backprobe as bp\n"
        "x = torch.ones(1, requires_grad=True)\n"
        "y = x\n"
        "for _ in range(120_000): y = y + 0\n"
        "with bp.edit_gradients(None, 'MulBackward0', bp.gradient_ops.scale(2.0)) as log:\n"
        "    y = y * 3\n"
        "    y.backward()\n"
        "    del y\n"
        "assert x.grad.item() == 6 and log.total == 1\n"
        "print('fine')\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=600)
    assert done.stdout == "fine\n", done.stderr


@pytest.mark.parametrize("inner", ["trace", "edit"])
def test_beside_a_trace(inner):
    """The trace reads what the engine has: edited where the edit is, and below."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1))
    x = torch.randn(5, 3)

    def traced(edit):
        model.zero_grad()
        trace = bp.trace(model)
        blocks = [trace, edit] if inner == "edit" else [edit, trace]
        with blocks[0], blocks[1]:
            model(x).square().sum().backward()
        nodes = {n.name: n for n in trace.steps[0].backwards[0].nodes}
        return trace, nodes

    _, nodes = traced(bp.edit_gradients(model, "ReluBackward0", ops.scale(100.0), where="node"))
    relu, addmm = nodes["ReluBackward0"], model[0].weight.grad.norm().item()
    (h,) = [torch.relu(model[0](x))]
    g = (2 * model[2](h)) @ model[2].weight * (h > 0)
    assert relu.grad_inputs[0].norm == pytest.approx(100 * g.norm().item(), rel=1e-5)
    assert addmm == pytest.approx(100 * (g.t() @ x).norm().item(), rel=1e-5)
    trace, _ = traced(bp.edit_gradients(model, "0.weight", ops.scale(100.0)))
    assert trace["0.weight"].grad_norm == pytest.approx(model[0].weight.grad.norm().item(), rel=1e-5)
    assert trace.findings == []
    trace, nodes = traced(bp.edit_gradients(model, "1", ops.scale(100.0), where="output"))
    assert nodes["ReluBackward0"].grad_outputs[0].norm == pytest.approx(
        100 * ((2 * model[2](h)) @ model[2].weight).norm().item(), rel=1e-5
    )
    assert model[0].weight.grad.norm().item() == pytest.approx(addmm, rel=1e-5)


def test_a_real_training_loop_with_edits_on_everything_else_as_without():
    """A small convnet trained for some steps: with an edit that leaves every gradient, bit for bit the same weights."""

    def train(edit):
        torch.manual_seed(0)
        model = nn.Sequential(
            *(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(inplace=True), nn.Dropout(0.2), nn.Flatten()),
            *(nn.Linear(4 * 36, 8), nn.ReLU(), nn.Linear(8, 3)),
        )
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
        x, y = torch.randn(16, 1, 8, 8), torch.randint(0, 3, (16,))
        losses = []
        with edit(model):
            for _ in range(5):
                optimizer.zero_grad()
                loss = F.cross_entropy(model(x), y)
                loss.backward()
                optimizer.step()
                losses.append(loss.item())
        return losses, [p.detach().clone() for p in model.parameters()], torch.get_rng_state()

    plain = train(lambda m: torch.enable_grad())
    for where in ("parameter", "output", "node"):
        losses, weights, state = train(lambda m, w=where: bp.edit_gradients(m, "*", lambda g: g.clone(), where=w))
        assert losses == plain[0]
        assert all(torch.equal(a, b) for a, b in zip(weights, plain[1], strict=True))
        assert torch.equal(state, plain[2])
    losses, _, state = train(lambda m: bp.edit_gradients(m, "*", ops.noise(0.01)))
    assert losses != plain[0]
    assert torch.equal(state, plain[2])


def test_memory_does_not_grow_with_the_run():
    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU(inplace=True), nn.Linear(2, 1))
    x = torch.ones(1, 1, 2)
    with bp.edit_gradients(model, "*", triple, where="output", keep=10) as log:
        for _ in range(700):
            model(x)
        held = log._tensors
        assert len(held._handles) <= 1100
        assert len(held._spots) <= 1100
        model(x).sum().backward()
    assert len(log.entries) == log.total == 3


@pytest.mark.parametrize("where", ["parameter", "output", "node"])
@pytest.mark.parametrize("shape", [(3, 4), (2, 3, 4)])
def test_batched_gradients(where, shape):
    """``is_grads_batched`` runs hooks under ``vmap``: an edit is applied to each gradient of the batch by itself."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 3), nn.ReLU(inplace=where != "node"), nn.Linear(3, 2))
    x, name = torch.randn(shape), {"parameter": "0.weight", "output": "0", "node": "ReluBackward0"}[where]
    for action in (ops.clip_norm(0.1), ops.clamp(min=0), ops.drop_nonfinite(whole=True), ops.zero):
        with bp.edit_gradients(model, name, action, where=where) as log:
            out = model(x)
            v = torch.randn(5, *out.shape)
            (batched,) = grad(out, model[0].weight, v, is_grads_batched=True, retain_graph=True)
            assert log.entries[0].norm_before is None
            for k in range(5):
                (one,) = grad(out, model[0].weight, v[k], retain_graph=True)
                torch.testing.assert_close(batched[k], one)
