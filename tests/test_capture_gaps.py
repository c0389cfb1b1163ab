"""Reports of what capture cannot see: odd outputs, compiled regions, TorchScript, views without gradient mode."""

from __future__ import annotations

import pytest
import torch
from capturing import Function
from torch import nn
from torch.utils.checkpoint import checkpoint

import backprobe as bp


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


def test_unobserved_values_are_reported() -> None:
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


def test_a_compiled_region_is_reported() -> None:
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


@pytest.mark.filterwarnings("ignore:`torch.jit")
def test_torchscript_is_reported() -> None:
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
