"""Capture: values, names and gradients, held against a second way to get them."""

from __future__ import annotations

import gc
import subprocess
import sys
import weakref
from collections import OrderedDict, namedtuple
from dataclasses import dataclass

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F
from torch.overrides import _get_current_function_mode_stack
from torch.utils.checkpoint import checkpoint

import backprobe as bp

Pair = namedtuple("Pair", "left right")


@dataclass
class Both:
    value: torch.Tensor
    more: dict[str, object]


class Function(nn.Module):
    """A module that calls a function on its input."""

    def __init__(self, function) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args, **kwargs):
        return self.function(*args, **kwargs)


class Nested(nn.Module):
    """Every kind of nesting, on the way to one loss."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)
        self.tuple = Function(lambda x: (x * 2, [x + 1, None]))
        self.dict = Function(lambda x, y: {"sum": x + y, "inner": {"k": x * y}})
        self.pair = Function(lambda x: Pair(x.sin(), x.cos()))
        self.data = Function(lambda x: Both(x.tanh(), {"z": x.exp(), "label": "text"}))

    def forward(self, x):
        first, (second, _) = self.tuple(self.a(x))
        d = self.dict(first, y=second)
        p = self.pair(d["sum"])
        out = self.data(self.b(p.left) * d["inner"]["k"] + self.a(p.right))
        return out.value + out.more["z"]


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(2, 3, 3, padding=1), nn.Conv2d(3, 2, 3, padding=1)
        self.bn1, self.bn2 = nn.BatchNorm2d(3), nn.BatchNorm2d(2)
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x):
        y = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        y += x
        return self.relu(y)


class Parts(nn.Module):
    """One node with several outputs, one of them used twice, one not at all."""

    def __init__(self) -> None:
        super().__init__()
        self.split, self.up, self.read = Function(lambda x: x.chunk(3, -1)), nn.Linear(4, 6), nn.Linear(2, 1)

    def forward(self, x):
        a, b, _ = self.split(self.up(x))
        return self.read(a * b + a)


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.cell, self.out = nn.LSTM(4, 3), nn.GRUCell(3, 3), nn.Linear(3, 1)

    def forward(self, x):
        y, (h, c) = self.lstm(x[:, None])
        state = h[0] + c[0]
        for step in y:
            state = self.cell(step, state)
        return self.out(state)


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.attend = nn.LayerNorm(4), nn.MultiheadAttention(4, 2, batch_first=True)

    def forward(self, x):
        x = self.norm(x)[None]
        y, weights = self.attend(x, x, x)
        return y.sum() * weights.square().sum()


def vector() -> torch.Tensor:
    return torch.randn(5, 4, dtype=torch.float64)


MODELS = {
    "mlp": lambda: (nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 1)), vector()),
    "in place": lambda: (
        nn.Sequential(nn.Linear(4, 6), Function(lambda x: x.mul_(1.5)), nn.ReLU(inplace=True), nn.Linear(6, 1)),
        vector(),
    ),
    "in place on a view": lambda: (
        nn.Sequential(nn.Linear(4, 6), nn.Unflatten(1, (2, 3)), nn.ReLU(inplace=True), nn.Flatten(), nn.Linear(6, 1)),
        vector(),
    ),
    "in place twice on a view": lambda: (
        nn.Sequential(
            nn.Linear(4, 6),
            Function(lambda x: x.t()),
            Function(lambda x: x.mul_(x.detach().cos() + 2)),
            nn.Identity(),
            nn.LeakyReLU(0.3, inplace=True),
            Function(lambda x: x.t()),
            nn.Linear(6, 2),
        ),
        vector(),
    ),
    "a part written": lambda: (
        nn.Sequential(nn.Linear(4, 6), Function(lambda x: [x, x[:, :3].mul_(3.0)][0]), nn.Linear(6, 1)),
        vector(),
    ),
    "nested": lambda: (Nested(), vector()),
    "residual": lambda: (Residual(), torch.randn(2, 2, 5, 5, dtype=torch.float64)),
    "parts": lambda: (Parts(), vector()),
    "recurrent": lambda: (Recurrent(), vector()),
    "attention": lambda: (Attention(), vector()),
}


def model_of(case: str):
    torch.manual_seed(0)
    model, x = MODELS[case]()
    return model.double(), x


def oracle(model: nn.Module, x: torch.Tensor, name: str):
    """Value and gradient of one tensor another way: a zero that requires grad is added to it as it comes."""
    path, _, suffix = name.partition("/")
    path, _, number = path.partition(":")
    module = model.get_submodule(path)
    probe: dict[str, torch.Tensor] = {}
    calls = 0

    def put(value, keys):
        if not keys:
            probe["value"] = value.detach().clone()
            probe["zero"] = torch.zeros_like(value, requires_grad=True)
            return value + probe["zero"]
        key, rest = keys[0], keys[1:]
        if isinstance(value, dict):
            return {k: put(v, rest) if k == key else v for k, v in value.items()}
        if isinstance(value, Pair):
            return value._replace(**{key: put(getattr(value, key), rest)})
        if isinstance(value, Both):
            setattr(value, key, put(getattr(value, key), rest))
            return value
        return type(value)(put(v, rest) if str(i) == key else v for i, v in enumerate(value))

    def hook(module, args, output):
        nonlocal calls
        calls += 1
        return put(output, suffix.split("/") if suffix else []) if calls == int(number or 1) else None

    with module.register_forward_hook(hook):
        out = model(x)
    (grad,) = torch.autograd.grad(out.square().sum(), probe["zero"], allow_unused=True)
    return probe["value"], grad


@pytest.mark.parametrize("case", MODELS)
def test_values_and_gradients_are_those_of_the_oracle(case: str) -> None:
    model, x = model_of(case)
    acts = bp.capture(model, x, grads=True)
    acts.output.square().sum().backward()
    assert len(acts) > 2
    for name in acts:
        value, grad = oracle(model, x, name)
        assert torch.equal(acts[name], value), name
        if grad is None or not grad.any():
            assert name not in acts.grads or not acts.grads[name].any(), name
            continue
        torch.testing.assert_close(acts.grads[name], grad, rtol=1e-10, atol=1e-12, msg=name)
        torch.testing.assert_close(acts[name].grad, grad, rtol=1e-10, atol=1e-12, msg=name)
    assert acts.unseen.keys() <= {"attend.out_proj"}


STEPS = {
    "linear": lambda: nn.Linear(4, 4),
    "relu_": lambda: nn.ReLU(inplace=True),
    "mul_": lambda: Function(lambda x: x.mul_(1.5)),
    "view": lambda: Function(lambda x: x.view(-1).view(x.shape)),
    "turn": lambda: Function(lambda x: x.flip(1).t().t()),
    "part": lambda: Function(lambda x: [x, x[1:].sin_()][0]),
    "same": nn.Identity,
    "tanh": nn.Tanh,
}


@settings(max_examples=60)
@given(st.lists(st.sampled_from(sorted(STEPS)), min_size=1, max_size=7))
def test_any_chain_of_views_and_writes(steps: list[str]) -> None:
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(4, 4), *(STEPS[s]() for s in steps), nn.Linear(4, 1)).double()
    x = torch.randn(3, 4, dtype=torch.float64)
    try:
        model(x).square().sum().backward()
    except RuntimeError:  # a write to what a step before it has saved
        assume(False)
    acts = bp.capture(model, x, grads=True)
    acts.output.square().sum().backward()
    for name in acts:
        value, grad = oracle(model, x, name)
        assert torch.equal(acts[name], value), name
        if name in acts.grads:
            torch.testing.assert_close(acts.grads[name], grad, rtol=1e-10, atol=1e-12, msg=name)
        else:
            with pytest.raises(bp.BackprobeError, match="no true gradient"):
                acts.grads[name]


def test_names_and_order() -> None:
    model, x = model_of("nested")
    assert list(bp.capture(model, x)) == [
        *("a", "tuple/0", "tuple/1/0", "dict/sum", "dict/inner/k", "pair/left", "pair/right", "b", "a:2"),
        *("data/value", "data/more/z", ""),
    ]
    acts = bp.capture(model, x, select=["dict", "a"], with_inputs=True)
    assert list(acts) == ["a<in>/0", "a", "dict<in>/0", "dict<in>/y", "dict/sum", "dict/inner/k", "a:2<in>/0", "a:2"]
    assert torch.equal(acts["dict<in>/0"] + acts["dict<in>/y"], acts["dict/sum"])
    acts["dict/sum"].sum().backward()
    assert torch.equal(acts.grads["dict<in>/y"], torch.ones_like(x))


def test_gradients_of_inputs_are_those_of_the_tensors_that_came_in() -> None:
    model, x = model_of("in place")
    x.requires_grad_()
    acts = bp.capture(model, x, with_inputs=True)
    acts.output.square().sum().backward()
    assert torch.equal(acts.grads["0<in>/0"], x.grad)
    assert torch.equal(acts.grads["2<in>/0"], acts.grads["1"])
    assert acts["0<in>/0"] is x


def test_depth_and_selection() -> None:
    model = nn.Sequential(OrderedDict(enc=nn.Sequential(nn.Sequential(nn.Linear(2, 2)), nn.ReLU()), head=nn.ReLU()))
    x = torch.ones(1, 2)
    assert list(bp.capture(model, x, depth=0)) == [""]
    assert list(bp.capture(model, x, depth=1)) == ["enc", "head", ""]
    assert list(bp.capture(model, x, select="enc.*", depth=1)) == ["enc.0", "enc.1"]
    assert list(bp.capture(model, x, select="enc.*", depth=2)) == ["enc.0.0", "enc.0", "enc.1"]
    assert list(bp.capture(model, x, select=lambda name, m: isinstance(m, nn.Linear))) == ["enc.0.0"]
    listed = bp.modules(model, select="enc.*")
    assert listed.names == ["enc.0", "enc.0.0", "enc.1"]
    assert repr(listed).splitlines()[2].split() == ["enc.0.0", "Linear", "6", "weight", "2x2,", "bias", "2"]
    with pytest.raises(bp.BackprobeError, match=r"no module fits 'encoder'; names are like 'enc'"):
        bp.capture(model, x, select="encoder")
    with pytest.raises(bp.BackprobeError, match=r"depth=0 leaves nothing: 'enc.0'.* level 1"):
        bp.capture(model, x, select="enc.*", depth=0)
    with pytest.raises(bp.BackprobeError, match=r"depth must be a number of levels, 0 or more, not -1"):
        bp.capture(model, x, depth=-1)
    with pytest.raises(bp.BackprobeError, match=r"needs a torch.nn.Module, not function"):
        bp.capture(lambda x: x, x)


def test_a_module_with_two_names_goes_by_the_first_chosen_one() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    model.add_module("tied", model[0])
    assert list(bp.capture(model, torch.ones(1, 2), select="0")) == ["0", "0:2"]
    assert list(bp.capture(model, torch.ones(1, 2), select="tied")) == ["tied", "tied:2"]


def test_what_is_captured_is_the_tensor_that_flows() -> None:
    model, x = model_of("mlp")
    seen = []
    with model[1].register_forward_hook(lambda m, a, out: seen.append(out)):
        acts = bp.capture(model, x)
    assert acts["1"] is seen[0] and acts["1"].grad_fn is not None
    # Differentiate from one to another, and through what the user makes of it.
    (grad,) = torch.autograd.grad(acts["2"].sum(), acts["0"])
    expected = (1 - acts["1"] ** 2) * model[2].weight
    torch.testing.assert_close(grad, expected)
    (penalty,) = torch.autograd.grad(acts["0"].square().sum(), model[0].bias)
    torch.testing.assert_close(penalty, 2 * acts["0"].sum(0))


def test_an_edge_names_a_value_that_was_written_later() -> None:
    model, x = model_of("in place")
    acts = bp.capture(model, x)
    _, expected = oracle(model, x, "0")
    (grad,) = torch.autograd.grad(acts.output.square().sum(), acts.edge("0"), retain_graph=True)
    torch.testing.assert_close(grad, expected)
    # The value itself hangs on the graph where it was.
    (bias,) = torch.autograd.grad(acts["0"].sum(), model[0].bias)
    assert torch.equal(bias, torch.full_like(bias, 5))
    with pytest.raises(bp.BackprobeError, match="'0' has no gradient edge: detached"):
        bp.capture(model, x, detach=True).edge("0")


def test_gradients_are_summed_as_grad_is() -> None:
    model, x = model_of("mlp")
    acts = bp.capture(model, x)
    acts.output.sum().backward(retain_graph=True)
    once = acts["0"].grad.clone()
    acts.output.sum().backward(retain_graph=True)
    assert torch.equal(acts.grads["0"], 2 * once) and torch.equal(acts["0"].grad, 2 * once)
    acts["0"].grad = None
    acts.output.sum().backward(retain_graph=True)
    assert torch.equal(acts["0"].grad, once) and torch.equal(acts.grads["0"], once)
    acts.zero_grad()
    assert "0" not in acts.grads
    # A call that names a tensor fills its .grad without running its node.
    acts.output.sum().backward(inputs=[acts["0"]], retain_graph=True)
    assert torch.equal(acts.grads["0"], once) and torch.equal(acts["0"].grad, once)


def test_the_gradient_is_the_one_after_the_users_hooks() -> None:
    model, x = model_of("mlp")
    with bp.capture(model) as acts:
        y = model[1](model[0](x))
        y.retain_grad()
        y.register_hook(lambda g: g * 3)
        model[2](y).sum().backward()
    assert torch.equal(acts.grads["1"], y.grad)
    assert torch.equal(acts.grads["1"], 3 * model[2].weight.expand(5, 6))
    assert acts["1"] is y


def test_a_gradient_stays_what_it_was_when_parameter_gradients_change() -> None:
    """The accumulator may take the memory of this very gradient."""
    model = nn.Sequential(nn.Linear(3, 3))
    prefix = nn.Parameter(torch.ones(2, 3))
    model.add_module("cat", Function(lambda x: torch.cat([prefix, x])))
    acts = bp.capture(model, torch.ones(1, 3))
    acts.output.sum().backward()
    prefix.grad.zero_()
    assert torch.equal(acts.grads["cat"], torch.ones(3, 3))


WRITES = {
    "method": lambda y: y.zero_(),
    "set item": lambda y: y.__setitem__(0, 0.0),
    "a view": lambda y: y.view(-1).zero_(),
    "data": lambda y: y.data.zero_(),
    "out": lambda y: torch.mul(y.detach(), 0.0, out=y.detach()),
    "foreach": lambda y: torch._foreach_zero_([y.detach()]),
    "operator": lambda y: y.detach().__imul__(0),
    "under no_grad": lambda y: torch.no_grad()(y.zero_)(),
}


@pytest.mark.parametrize("detach", [False, True])
@pytest.mark.parametrize("write", WRITES)
def test_values_do_not_change_with_later_writes(write: str, detach: bool) -> None:
    model, x = model_of("mlp")
    expected = model[0](x).detach()
    with bp.capture(model, detach=detach) as acts:
        y = model[0](x)
        WRITES[write](y)
        model[1](y)
    assert torch.equal(acts["0"], expected)
    assert not torch.equal(y, expected)
    assert torch.equal(acts["1"], y.tanh())


@pytest.mark.parametrize("options", [{}, {"detach": True}, {"dtype": torch.float32}, {"index": 0}])
def test_a_gradient_that_is_not_whole_is_not_given(options: dict) -> None:
    """The base of a captured view is written itself: what the write hands on is not laid out as the view."""

    def writes_the_base(x):
        y = x * 1
        view(y)
        return y.mul_(2)

    view = Function(lambda y: y.t())
    model = nn.Sequential(nn.Linear(3, 3), Function(writes_the_base))
    model.add_module("view", nn.Identity())
    model[1].view = view
    acts = bp.capture(model, torch.ones(2, 3), grads=True, **options)
    acts.output.sum().backward()
    with pytest.raises(KeyError, match=r"no true gradient for '1.view': it is a view whose base was written in place"):
        acts.grads["1.view"]
    assert "1.view" not in acts.grads and "1" in acts.grads
    if not acts["1.view"].requires_grad:
        assert acts["1.view"].grad is None


@pytest.mark.parametrize("options", [{"detach": True}, {"dtype": torch.float32}, {"reduce": torch.sum}])
@pytest.mark.parametrize("case", ["in place", "in place on a view", "in place twice on a view"])
def test_what_is_made_of_values_is_true_too(case: str, options: dict) -> None:
    model, x = model_of(case)
    acts = bp.capture(model, x, grads=True, **options)
    acts.output.square().sum().backward()
    make = options.get("reduce", lambda t: t.to(options.get("dtype", t.dtype)))
    for name in acts:
        value, grad = oracle(model, x, name)
        assert torch.equal(acts[name], make(value)), name
        torch.testing.assert_close(acts.grads[name], make(grad), msg=name)
    with torch.inference_mode():
        quiet = bp.capture(model, x, **options)
    for name in acts:
        assert torch.equal(quiet[name], acts[name]), name


def test_a_write_that_python_does_not_see_is_said() -> None:
    model, x = model_of("mlp")
    with bp.capture(model) as acts:
        y = model[0](x)
        with torch._C.DisableTorchFunction():
            y.detach().zero_()
    assert acts.notes["0"].startswith("overwritten in place by code that Python does not see")
    assert "note: 0: overwritten" in repr(acts)


@pytest.mark.parametrize("case", MODELS)
def test_gradients_and_random_state_are_bitwise_as_without(case: str) -> None:
    results = []
    for captured in (False, True):
        model, x = model_of(case)
        x = F.dropout(x)
        if captured:
            with bp.capture(model, with_inputs=True, lines=True, grads=True) as acts:
                loss = model(x).square().sum()
                loss.backward()
            assert len(acts)
        else:
            model(x).square().sum().backward()
        results.append([p.grad for p in model.parameters()])
        results.append([torch.get_rng_state()])
    for a, b in zip(results[0] + results[1], results[2] + results[3], strict=True):
        assert torch.equal(a, b)


def attached(model: nn.Module) -> int:
    return sum(
        len(hooks)
        for m in model.modules()
        for hooks in (
            *(m._forward_hooks, m._forward_pre_hooks, m._backward_hooks, m._backward_pre_hooks),
            *(m._forward_hooks_with_kwargs, m._forward_hooks_always_called, m._forward_pre_hooks_with_kwargs),
        )
    )


def test_nothing_is_left() -> None:
    model, x = model_of("residual")
    with bp.capture(model, with_inputs=True, lines=True) as acts:
        assert attached(model) > 0
        out = model(x)
    assert attached(model) == 0 and _get_current_function_mode_stack() == []
    copied, saved = weakref.ref(acts["bn1"]), weakref.ref(acts["conv1"])
    gc.disable()
    try:
        del acts
        assert copied() is None  # at once, without the collector
        out.sum().backward()
        assert saved() is None  # the graph had it
    finally:
        gc.enable()
    with pytest.warns(UserWarning, match="not a leaf"):
        assert out.grad is None
    ref = weakref.ref(model)
    del model, out
    gc.collect()
    assert ref() is None


def test_acts_do_not_keep_the_model() -> None:
    model, x = model_of("mlp")
    acts = bp.capture(model, x, detach=True)
    ref = weakref.ref(model)
    del model
    gc.collect()
    assert ref() is None and len(acts) == 4 and acts.unseen == {}


def test_a_graph_that_lives_on_does_not_keep_what_was_captured() -> None:
    model, x = model_of("mlp")
    acts = bp.capture(model, x, dtype=torch.float16)
    loss = acts.output.sum()
    loss.backward(retain_graph=True)
    kept, grad = weakref.ref(acts["0"]), weakref.ref(acts.grads["0"])
    assert grad() is not None
    acts.close()
    assert len(acts) == 0 and kept() is None and grad() is None
    loss.backward()
    assert len(acts.grads) == 0


@pytest.mark.filterwarnings("ignore:Using backward.. with create_graph=True")
def test_double_backward_leaves_no_cycle() -> None:
    model, x = model_of("mlp")
    acts = bp.capture(model, x)
    acts.output.sum().backward(create_graph=True)
    assert not acts["0"].grad.requires_grad
    ref = weakref.ref(acts["0"])
    for p in model.parameters():
        p.grad = None
    gc.disable()
    try:
        del acts
        assert ref() is None
    finally:
        gc.enable()


def test_an_error_of_the_model_goes_through_and_what_came_before_is_there() -> None:
    def fails(x):
        raise ValueError("as it was")

    model = nn.Sequential(nn.Linear(4, 4), Function(fails), nn.Linear(4, 4)).double()
    with pytest.raises(ValueError, match=r"^as it was$"), bp.capture(model) as acts:
        model(vector())
    assert attached(model) == 0 and _get_current_function_mode_stack() == []
    assert list(acts) == ["0"]
    assert acts.unseen == {"1": "raised ValueError", "": "raised ValueError", "2": "not called"}
    with pytest.raises(KeyError, match="nothing was captured under '1': raised ValueError"):
        acts["1"]


def test_an_error_while_hooks_are_put_on_leaves_none() -> None:
    class Refuses(nn.Linear):
        def register_forward_hook(self, *args, **kwargs):
            raise TypeError("no hooks here")

    model = nn.Sequential(nn.Linear(2, 2), Refuses(2, 2))
    with pytest.raises(TypeError, match="no hooks here"), bp.capture(model):
        pass
    assert attached(model) == 0 and _get_current_function_mode_stack() == []


class Odd(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fine, self.direct, self.unused = nn.Linear(2, 2), nn.Linear(2, 2), nn.Linear(2, 2)
        self.outer = nn.Sequential(nn.Linear(2, 2))
        self.none, self.text = Function(lambda x: None), Function(lambda x: "text")
        self.mixed = Function(lambda x: (x, object()))

    def forward(self, x):
        self.none(x)
        self.text(x)
        try:
            raise KeyError("outside")
        except KeyError:
            self.none(x)
        with torch.no_grad():
            quiet = self.fine(x)
        return self.mixed(self.outer.forward(self.direct.forward(quiet)))[0]


def test_what_was_not_seen_is_said() -> None:
    acts = bp.capture(Odd(), torch.ones(1, 2))
    assert acts.unseen == {
        "none": "returned None",
        "none:2": "returned None",
        "text": "returned no tensor (str)",
        "direct": "not called, but its parameters were used: by .forward(), or directly",
        "unused": "not called",
        "outer": "not called, but modules in it were: by .forward(), or another method",
    }
    assert acts.notes == {
        "fine": "called under no_grad: no gradient will come",
        "mixed": "not looked into: /1 is a object",
    }
    said = repr(acts)
    assert "not seen: none, none:2: returned None" in said
    assert "note: fine: called under no_grad: no gradient will come" in said


def test_a_compiled_region_is_said() -> None:
    inner = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    model = nn.Sequential(torch.compile(inner, backend="eager"), nn.Linear(2, 1))
    x = torch.ones(1, 2)
    for _ in range(2):  # while it compiles, and when it is
        acts = bp.capture(model, x)
        assert list(acts) == ["0", "1", ""]
        assert acts.unseen == {
            "0._orig_mod": "in a compiled region, where hooks do not run",
            "0._orig_mod.0": "in a compiled region, where hooks do not run",
            "0._orig_mod.1": "in a compiled region, where hooks do not run",
        }
        acts.output.sum().backward()
        assert torch.equal(acts.grads["0"], model[1].weight)


def test_recomputation_is_not_a_second_call() -> None:
    inner = nn.Sequential(nn.Linear(2, 2), nn.Tanh())
    model = Function(lambda x: checkpoint(inner, x, use_reentrant=False))
    model.inner = inner
    acts = bp.capture(model, torch.ones(1, 2))
    acts.output.sum().backward()
    assert list(acts) == ["inner.0", "inner.1", "inner", ""]
    with bp.capture(model) as acts:
        model(torch.ones(1, 2)).sum().backward()
    assert list(acts) == ["inner.0", "inner.1", "inner", ""]
    assert acts.notes["inner.0"] == "called again in the backward (recomputation): not captured again"
    torch.testing.assert_close(acts.grads["inner.0"], 1 - acts["inner.1"].detach() ** 2)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_torchscript_is_said() -> None:
    scripted = torch.jit.script(nn.Sequential(nn.Linear(2, 2)))
    traced = torch.jit.trace(nn.Sequential(nn.Linear(2, 2)), torch.ones(1, 2))
    model = nn.Sequential(scripted, traced)
    acts = bp.capture(model, torch.ones(1, 2))
    assert list(acts) in (["", "1"], ["1", ""])
    said = "in TorchScript, where hooks do not run"
    assert acts.unseen == {"0": said, "0.0": said, "1.0": said}


def test_views_made_without_gradient_mode_have_no_gradient_of_their_own() -> None:
    model = Function(lambda x: x.view(-1))
    leaf = torch.randn(3, requires_grad=True)
    for x in (leaf, leaf * 2):
        with torch.no_grad():
            acts = bp.capture(model, x, with_inputs=True)
        assert acts[""].requires_grad
        with pytest.raises(KeyError, match="called under no_grad"):
            acts.grads[""]
        (x * 3).sum().backward()
        assert torch.equal(acts.grads["<in>/0"], torch.full((3,), 3.0))


@pytest.mark.filterwarnings("ignore:Full backward hook is firing")
def test_beside_the_users_own_hooks() -> None:
    """Torch's full backward hooks pass tensors through a function of their own; forward hooks replace outputs."""
    model = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 1))
    seen = {}
    model[1].register_full_backward_hook(lambda m, gi, go: seen.update(inside=gi[0], out=go[0]))
    model[0].register_forward_hook(lambda m, args, out: out * 3)
    acts = bp.capture(model, torch.ones(2, 4), with_inputs=True, lines=True)
    acts.output.square().sum().backward()
    assert torch.equal(acts["1"], acts["0"].tanh())
    assert torch.equal(acts.grads["1"], seen["out"]) and torch.equal(acts.grads["1<in>/0"], seen["inside"])
    assert torch.equal(acts.grads["0"], seen["inside"])


def test_one_capture_in_another() -> None:
    model, x = model_of("in place on a view")
    with bp.capture(model) as outer:
        with bp.capture(model, lines=True) as inner:
            out = model(x)
        out.square().sum().backward()
    for name in outer:
        assert torch.equal(outer[name], inner[name]) and torch.equal(outer.grads[name], inner.grads[name])
    _, expected = oracle(model, x, "1")
    torch.testing.assert_close(outer.grads["1"], expected)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_export_and_tracing_go_on_as_without() -> None:
    model, x = model_of("mlp")
    with bp.capture(model):
        program = torch.export.export(model, (x,))
        traced = torch.jit.trace(model, x)
    assert torch.equal(program.module()(x), model(x)) and torch.equal(traced(x), model(x))
    plain = torch.export.export(model, (x,))
    assert [n.target for n in program.graph.nodes] == [n.target for n in plain.graph.nodes]


def test_under_a_transform_of_torch_func() -> None:
    model = nn.Linear(2, 2)
    with bp.capture(model) as acts:
        torch.func.grad(lambda x: model(x).sum())(torch.ones(2))
    assert list(acts) == []
    assert acts.unseen == {"": "inside a torch.func transform, whose tensors end with it"}


def test_values_are_kept_as_asked() -> None:
    model, x = model_of("mlp")
    plain = bp.capture(model, x)
    acts = bp.capture(model, x, index=(slice(None), 0), dtype=torch.float16, device="cpu", grads=True)
    assert torch.equal(acts["0"], plain["0"][:, 0].half()) and acts["0"].grad_fn is not None
    acts.output.sum().backward()
    plain.output.sum().backward()
    assert torch.equal(acts.grads["0"], plain.grads["0"][:, 0].half())
    assert torch.equal(acts["0"].grad, acts.grads["0"])
    # A slice is no view: it does not keep the rest in memory.
    assert acts["0"].untyped_storage().nbytes() == 10
    norms = bp.capture(model, x, detach=True, grads=True, reduce=lambda t: t.norm().item())
    norms.output.sum().backward()
    assert norms["1"].item() == pytest.approx(plain["1"].norm().item())
    assert norms.grads["1"].item() == pytest.approx(plain.grads["1"].norm().item())
    assert not norms["1"].requires_grad
    detached = bp.capture(model, x, detach=True)
    assert not detached["0"].requires_grad and len(detached.grads) == 0
    tokens = bp.capture(Function(lambda x: (x, x.argmax(-1))), x, dtype=torch.float16)
    assert tokens["/0"].dtype is torch.float16 and tokens["/1"].dtype is torch.int64
    with pytest.raises(bp.BackprobeError, match=r"reduce=<lambda> gave str") as error:
        bp.capture(model, x, reduce=lambda t: "no")
    assert error.value.__notes__[-1] == "backprobe: while keeping what '0' (Linear) gave"


def test_ways_to_give_inputs() -> None:
    model = Function(lambda x, y=1.0, *, scale=1.0: x * y * scale)
    one = torch.ones(2)
    assert bp.capture(model, one).output.sum() == 2
    assert bp.capture(model, (one, 3.0)).output.sum() == 6
    assert bp.capture(model, {"x": one, "scale": 5.0}).output.sum() == 10
    assert bp.capture(model, "ab", preprocess=lambda s: torch.tensor([float(len(s))])).output.item() == 2
    with pytest.raises(bp.BackprobeError, match="the inputs are text: give preprocess=tokenizer"):
        bp.capture(model, ["some text"])
    with pytest.raises(bp.BackprobeError, match="preprocess= needs inputs"):
        bp.capture(model, preprocess=str)
    acts = bp.capture(model)
    with acts:
        model(one)
    with pytest.raises(bp.BackprobeError, match="this capture has run"), acts:
        pass


def test_errors_say_what_to_do() -> None:
    model, x = model_of("nested")
    acts = bp.capture(model, x)
    with pytest.raises(KeyError) as error:
        acts["tuple"]
    assert str(error.value) == (
        "nothing was captured under 'tuple': its output is nested, its tensors are 'tuple/0', 'tuple/1/0'"
    )
    with pytest.raises(bp.BackprobeError, match=r"nothing was captured under 'pair/lef'; names are like 'pair/left'"):
        acts["pair/lef"]
    with pytest.raises(KeyError, match="no gradient for 'a': no backward has come by yet"):
        acts.grads["a"]
    acts["tuple/0"].sum().backward()
    with pytest.raises(KeyError, match="no gradient for 'b': the backward reached others, but there is no path"):
        acts.grads["b"]
    with pytest.raises(KeyError, match="made with grads=False"):
        bp.capture(model, x, grads=False).grads["a"]
    with torch.no_grad(), pytest.raises(KeyError, match="no gradient for 'a': called under no_grad"):
        bp.capture(model, x).grads["a"]
    with pytest.raises(TypeError):
        acts["a"] = x  # type: ignore[index]


def test_the_table() -> None:
    model = nn.Sequential(OrderedDict([("<b>&", Function(lambda x: x / torch.tensor([1.0, 0.0, 2.0])))]))
    acts = bp.capture(model, torch.tensor([3.0, 1.0, 2.0]))
    row = acts.table()[0]
    assert (row.name, row.made_by, row.shape, row.dtype, row.nonfinite) == ("<b>&", "Function", (3,), "float32", 1)
    assert (row.low, row.high, row.mean, row.deviation) == (1.0, 3.0, 2.0, 1.0)
    lines = repr(acts).splitlines()
    assert lines[0] == "2 captured tensors"
    assert lines[2].split() == ["<b>&", "Function", "3", "float32", "1", "to", "3", "2", "1", "1"]
    page = acts._repr_html_()
    assert "&lt;b&gt;&amp;" in page and "<b>" not in page
    odd = Function(lambda x: (x.to_sparse(), x.to("meta"), torch.empty(0), x > 1, x * 1j))
    shown = bp.capture(odd, torch.ones(2)).table()
    assert [(r.mean, r.nonfinite) for r in shown] == [(None, 0), (None, 0), (None, 0), (0.0, 0), (1.0, 0)]


def test_it_composes_with_a_trace() -> None:
    results = []
    for both in (False, True):
        model, x = model_of("residual")
        with bp.trace(model) as trace:
            if both:
                with bp.capture(model) as acts:
                    model(x).square().sum().backward()
            else:
                model(x).square().sum().backward()
        results.append([p.grad for p in model.parameters()])
        assert trace.findings == []
        assert len(trace.steps) == 1
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))
    assert torch.equal(acts.grads["conv1"], oracle_grad("residual", "conv1"))


def oracle_grad(case: str, name: str) -> torch.Tensor:
    model, x = model_of(case)
    return oracle(model, x, name)[1]


def test_results_of_ops_by_line() -> None:
    def between(x):
        y = x * 2
        y = F.relu(y, inplace=True) + x.T.sum() + torch.stack(x.unbind(0)).mean()
        return y

    line = between.__code__.co_firstlineno + 1
    model, x = nn.Sequential(nn.Linear(3, 3), Function(between)), torch.randn(3, 3)
    acts = bp.capture(model, x, lines=True)
    acts.output.sum().backward()
    (doubled,) = acts.at(f"test_capture.py:{line}")
    assert torch.equal(doubled, acts["0"] * 2)
    assert torch.equal(acts.grads[f"test_capture.py:{line} mul"], (acts["0"] > 0).float())
    assert torch.equal(doubled.grad, (acts["0"] > 0).float())
    names = [name.split(" ", 1)[1] for name in acts.lines if f":{line + 1} " in name]
    assert names == ["relu", "T", "sum", "add", "unbind/0", "unbind/1", "unbind/2", "stack", "mean", "add:2"]
    assert acts.lines[f"test_capture.py:{line} mul"] == "y = x * 2"
    assert len(acts.at(f"tests/test_capture.py:{line}-{line + 1}")) == 11
    only = bp.capture(model, x, select="1", lines=f"test_capture.py:{line}")
    assert list(only.lines) == [f"test_capture.py:{line} mul"] and list(only) == ["1"]
    with pytest.raises(bp.BackprobeError, match=rf"no tensor was made at test_capture.py:1; .*test_capture.py:{line}"):
        acts.at("test_capture.py:1")
    with pytest.raises(bp.BackprobeError, match=r"capture\(..., lines='model.py:41'\) keeps what is made there"):
        bp.capture(model, x).at("model.py:41")
    with pytest.raises(bp.BackprobeError, match=r"'here' is no place in a file: write 'model.py:41'"):
        bp.capture(model, x, lines=["here"])


@pytest.mark.parametrize("first", ["import backprobe.activations.api", "backprobe.capture", "import backprobe.engine"])
def test_the_function_is_there_whichever_way_it_is_imported(first: str) -> None:
    code = (
        f"import inspect, backprobe, torch\n{first}\n"
        "acts = backprobe.capture(torch.nn.Linear(2, 2), torch.ones(2), detach=True)\n"
        "from backprobe.activations import Activations\n"
        "import backprobe.activations.table as table\n"
        "assert isinstance(acts, Activations) and isinstance(acts.table()[0], table.Row)\n"
        "assert list(inspect.signature(backprobe.capture).parameters)[:2] == ['model', 'inputs']\n"
        "assert inspect.isfunction(backprobe.capture) and inspect.isfunction(backprobe.graph)\n"
        "assert 'Keep the tensors that modules return' in backprobe.capture.__doc__\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
