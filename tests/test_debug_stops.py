"""``breakpoint_backward``: stops in the engine's own thread, and complete removal."""

from __future__ import annotations

import doctest
import importlib
import io
import os
import threading

import pytest
import torch
from stepping import Fails, Net, grads
from torch import nn
from torch.overrides import TorchFunctionMode
from watching import same

import backprobe
from backprobe import BackprobeError
from backprobe.engine.options import breakpoint_from, parsed
from backprobe.torch_internals import modes


def train(model: nn.Module, steps: int = 3) -> list:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    found = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = model(torch.randn(4, 6, requires_grad=True)).square().mean()
        loss.backward()
        found.append([loss.item(), [g.clone() for g in grads(model)]])
        optimizer.step()
    return found


@pytest.mark.parametrize("again", [None, "reentrant", "plain"])
@pytest.mark.parametrize("how", ["node", "into", "cont"])
def test_stopping_everywhere_changes_nothing(again: str | None, how: str) -> None:
    torch.manual_seed(0)
    alone = [train(Net(again)), torch.get_rng_state()]
    torch.manual_seed(0)
    seen = []

    def look(stop):
        seen.append((stop.node.name, stop.depth))
        str(stop), stop.saved, stop.path, stop.graph(2)
        assert threading.current_thread() is threading.main_thread()
        return how

    where = {} if how != "cont" else {"when": "norm >= 0"}
    with backprobe.breakpoint_backward(action=look, **where):
        stepped = [train(Net(again)), torch.get_rng_state()]
    assert same(alone, stepped)
    assert len(seen) >= 45
    assert {depth for _, depth in seen} == ({1, 2} if again == "reentrant" and how != "node" else {1})
    assert modes.mode_depth() == 0


def test_modules_and_lines_are_known() -> None:
    model = Net("reentrant")
    places = {}

    def note(stop):
        places[stop.node.name, stop.depth, len(places)] = stop.node.place

    with backprobe.breakpoint_backward("*LayerNorm*", action=note, model=model):
        model(torch.randn(4, 6, requires_grad=True)).sum().backward()
    found = [(depth, place.name) for (_, depth, _), place in places.items()]
    assert [name.split(":")[0] for _, name in found] == ["enc.1.1", "enc.1.1", "enc.0.1"]
    assert {depth for depth, _ in found} == {2}
    assert all(place.site.file.endswith("stepping.py") for place in places.values())


def test_an_action_changes_gradients_and_ends_the_backward() -> None:
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    with backprobe.breakpoint_backward("ExpBackward0", action=lambda stop: stop.replace(0.5) and None) as stops:
        pass
    with backprobe.breakpoint_backward(
        node="ExpBackward0", phase="after", action=lambda stop: stop.replace(lambda g: g * 10, 0).sum() and None
    ) as stops:
        x.exp().sum().backward()
        assert stops.breakpoints[0].hits == 1
    assert torch.equal(x.grad, x.detach().exp() * 10)
    with (
        backprobe.breakpoint_backward("ExpBackward0", action=lambda stop: "abort"),
        pytest.raises(BackprobeError, match=r"the backward was aborted before ExpBackward0; gradients that were"),
    ):
        x.exp().sum().backward()
    x.grad = None
    x.exp().sum().backward()
    assert torch.equal(x.grad, x.detach().exp())


def test_an_error_of_the_action_is_raised_once() -> None:
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    calls = []

    def action(stop):
        calls.append(stop.phase)
        raise LookupError("mine")

    with backprobe.breakpoint_backward("ExpBackward0", action=action):
        with pytest.raises(LookupError, match="mine"):
            x.exp().sum().backward()
        with pytest.raises(LookupError, match="mine"):
            x.exp().sum().backward()
    assert calls == ["before", "before"]
    with (
        backprobe.breakpoint_backward("ExpBackward0", action=lambda stop: 3),
        pytest.raises(BackprobeError, match=r"returned a int; it returns None to go on, or one of 'node'"),
    ):
        x.exp().sum().backward()


def test_a_node_that_raises_stops_and_the_error_goes_on() -> None:
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    seen = []

    def action(stop):
        seen.append((stop.phase, stop.node.name, str(stop.error)))

    with backprobe.breakpoint_backward("NoSuchNode", action=action), pytest.raises(ZeroDivisionError):
        Fails.apply(x).sum().backward()
    assert seen == [("exception", "FailsBackward", "no such gradient")]


def test_other_modes_stay_where_they_are() -> None:
    class Mode(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            return func(*args, **(kwargs or {}))

    with Mode() as outer:
        stops = backprobe.breakpoint_backward("Exp*", action=lambda stop: None)
        with Mode() as inner:
            stops.remove()
            stops.remove()
            assert modes.function_modes() == [outer, inner]
    assert modes.mode_depth() == 0


def test_it_cannot_be_removed_from_inside() -> None:
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    with backprobe.breakpoint_backward("ExpBackward0", action=lambda stop: stops.remove()) as stops:
        with pytest.raises(BackprobeError, match="cannot be removed inside the backward that it watches"):
            x.exp().sum().backward()
        thread_error = []

        def other():
            try:
                stops.remove()
            except BackprobeError as error:
                thread_error.append(error)

        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
        assert thread_error
    assert modes.mode_depth() == 0


def test_more_breakpoints_and_counts() -> None:
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    seen = []
    with backprobe.breakpoint_backward(
        "SinBackward0", count=2, action=lambda s: seen.append(s.breakpoint.number)
    ) as stops:
        stops.add("param * after")
        stops.add(when="nonfinite")
        for _ in range(3):
            x.exp().sin().sum().backward()
    assert seen == [2, 1, 2, 1, 2]


def test_a_trace_beside_it_records_as_ever() -> None:
    model = Net()
    with backprobe.trace(model) as trace, backprobe.breakpoint_backward("Tanh*", action=lambda stop: None) as stops:
        model(torch.randn(4, 6)).sum().backward()
    assert stops.breakpoints[0].hits == 3
    runs = trace.steps[0].backwards[0].nodes
    assert sum(run.name == "TanhBackward0" and run.order is not None for run in runs) == 3


def test_wrong_arguments() -> None:
    with pytest.raises(BackprobeError, match="action is a int; it is a function of the stop"):
        backprobe.breakpoint_backward(action=3)
    with pytest.raises(BackprobeError, match=r"model is a str; give a torch.nn.Module"):
        backprobe.breakpoint_backward(model="model")
    with pytest.raises(TypeError, match=r"no argument 'modul'; did you mean 'module'\? it has node, module"):
        backprobe.breakpoint_backward(modul="0")
    assert modes.mode_depth() == 0


def test_a_child_process_goes_on_without_stops() -> None:
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    seen = []
    with backprobe.breakpoint_backward("ExpBackward0", action=seen.append):
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                x.exp().sum().backward()
                code = 0 if not seen and torch.equal(x.grad, x.detach().exp()) else 2
            finally:
                os._exit(code)
        assert os.waitpid(pid, 0)[1] == 0


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("AddmmBackward0", "node 'AddmmBackward0'"),
        ("*Norm* after", "node '*Norm*', after it ran"),
        ("module encoder.* enter if norm > 10", "enter module 'encoder.*', if norm > 10"),
        ("module head", "nodes of module 'head'"),
        ("param *.bias, nonfinite", "parameter '*.bias', if nonfinite"),
        ("train.py:41", "line train.py:41"),
        ("src/my train.py:41 if norm > 1", "line src/my train.py:41, if norm > 1"),
        ("#1234", "sequence number 1234"),
        ("norm > 10", "if norm > 10"),
        ("nonfinite", "if nonfinite"),
        ("if grads[0].max() > 1", "if grads[0].max() > 1"),
        ("Mul* if shape == (2, 3)", "node 'Mul*', if shape == (2, 3)"),
    ],
)
def test_the_text_form(text: str, said: str) -> None:
    assert str(breakpoint_from(text, {})) == said


@pytest.mark.parametrize("text", ["", "two words", "module", "param", "#x", "module a b c"])
def test_text_that_is_no_breakpoint(text: str) -> None:
    with pytest.raises(BackprobeError, match="is no breakpoint; give a node type"):
        breakpoint_from(text, {})


def test_the_prompt_opens_without_an_action(monkeypatch, capsys) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("p x.tolist()\nreplace 5.0\nc\n"))
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    with backprobe.breakpoint_backward("ExpBackward0"):
        y = x.exp()
        y.sum().backward()
    assert torch.equal(x.grad, y.detach() * 5)
    out = capsys.readouterr().out
    assert "> before ExpBackward0" in out and "[1.0, 2.0]" in out and "test_debug_stops.py" in out


def test_quitting_that_prompt_aborts_the_backward(monkeypatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("q\n"))
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    with (
        backprobe.breakpoint_backward(),
        pytest.raises(BackprobeError, match="the backward was aborted before SumBackward0"),
    ):
        x.exp().sum().backward()
    assert x.grad is None and modes.mode_depth() == 0


@pytest.mark.parametrize("module", ["backprobe.engine.handle", "backprobe.engine.attach"])
def test_the_examples_of_the_docstrings(module: str) -> None:
    found = doctest.testmod(importlib.import_module(module))
    assert found.attempted > 4 and found.failed == 0


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("blocks.0", {"module": "blocks.0"}),
        ("*.attention", {"module": "*.attention"}),
        ("AddmmBackward0", {"node": "AddmmBackward0"}),
        ("torch::autograd::CopySlices", {"node": "torch::autograd::CopySlices"}),
    ],
)
def test_a_name_with_a_dot_is_a_module(text, expected) -> None:
    assert parsed(text) == expected


class Idle(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, y):
        return x + y

    @staticmethod
    def backward(ctx, g):
        return g, None


@pytest.mark.parametrize(("node", "phase"), [("UnbindBackward0", "before"), ("IdleBackward", "after")])
def test_a_gradient_that_is_not_there_is_not_replaced(node: str, phase: str) -> None:
    """Torch would raise in the engine, so ``replace`` raises at once, and the backward continues."""
    x, y = torch.tensor([1.0, 2.0], requires_grad=True), torch.ones((), requires_grad=True)
    dbg = backprobe.debug(Idle.apply(x.unbind()[0] * 3, y))
    dbg.until(node, phase=phase)
    for new in (5.0, torch.ones(()), lambda grad: grad):
        with pytest.raises(BackprobeError, match=r"gradient 1 .* is None, and torch lets nothing be put in its place"):
            dbg.replace(new, 1)
    dbg.finish()
    assert x.grad.tolist() == [3.0, 0.0] and y.grad is None
