"""Breakpoints of the debugger: where they stop, under which conditions, and which are invalid."""

from __future__ import annotations

import pytest
import torch
from stepping import Net, order_of, small

import backprobe
from backprobe import BackprobeError


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

        order = order_of(loss)
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
