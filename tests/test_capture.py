"""Captured values, names and gradients, compared with an independent way to get them."""

from __future__ import annotations

import subprocess
import sys
from collections import OrderedDict

import pytest
import torch
from capturing import MODELS, Function, model_of, oracle
from torch import nn
from torch.nn import functional as F

import backprobe as bp


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
    listed = bp.list_modules(model, select="enc.*")
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


def test_a_captured_value_is_the_tensor_of_the_forward() -> None:
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


# How it is asked


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


@pytest.mark.parametrize(
    "first", ["import backprobe.user_tools.activations.api", "backprobe.capture", "import backprobe.engine"]
)
def test_the_function_is_there_whichever_way_it_is_imported(first: str) -> None:
    code = (
        f"import inspect, backprobe, torch\n{first}\n"
        "acts = backprobe.capture(torch.nn.Linear(2, 2), torch.ones(2), detach=True)\n"
        "from backprobe.user_tools.activations import Activations\n"
        "import backprobe.user_tools.activations.table as table\n"
        "assert isinstance(acts, Activations) and isinstance(acts.table()[0], table.Row)\n"
        "assert list(inspect.signature(backprobe.capture).parameters)[:2] == ['model', 'inputs']\n"
        "assert inspect.isfunction(backprobe.capture) and inspect.isfunction(backprobe.graph)\n"
        "assert 'Keep the tensors that modules return' in backprobe.capture.__doc__\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
