"""Breakpoints that wait: what they put on a graph, and that a cheap look rules nothing out that holds."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import backprobe
from backprobe.engine.control import Control
from backprobe.observe.backward.watch import Watch


def hooks_while_running(monkeypatch, **where) -> tuple[int, int]:
    """Hooks that a breakpoint puts on the nodes of a backward, and the nodes."""
    counts = []
    attach = Control.attach

    def counting(self) -> None:
        attach(self)
        counts.append((len(self._dicts), len(self.graph)))

    monkeypatch.setattr(Control, "attach", counting)
    model = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1))
    with backprobe.breakpoint_backward(action=lambda stop: None, **where):
        model(torch.randn(4, 2)).sum().backward()
    return counts[0]


@pytest.mark.parametrize("where", [{"node": "NoSuch*"}, {"module": "no.such"}, {"parameter": "none"}])
def test_one_hook_a_node_and_no_recorder(where, monkeypatch, capsys) -> None:
    def recorded(*given) -> None:
        raise AssertionError("a recorder was put on the graph")

    monkeypatch.setattr(Watch, "start", recorded)
    hooks, nodes = hooks_while_running(monkeypatch, **where)
    assert hooks == nodes
    assert capsys.readouterr().err.count("cannot stop in this backward") == 1


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.floats(width=32), min_size=1, max_size=6),
    st.floats(1e-6, 1e30),
    st.sampled_from(
        ["norm > {}", "norm >= {}", "nonfinite", "nonfinite or norm > {}", "norm > {} and phase == 'after'"]
    ),
    st.sampled_from([torch.float32, torch.float64, torch.float16]),
)
def test_a_cheap_look_rules_out_nothing_that_holds(values, limit, text, dtype) -> None:
    """The same stops as with a condition that cannot be looked at cheaply."""
    when = text.format(limit)
    given_gradient = torch.tensor(values, dtype=dtype)
    stops = []
    for condition in (when, f"(lambda: {when})()"):
        x = torch.ones(len(values), dtype=dtype, requires_grad=True)
        y = (x * 3).neg()
        y.register_hook(lambda g: g * 2)
        found: list[tuple[str, str]] = []
        with backprobe.breakpoint_backward(
            action=lambda s, to=found: to.append((s.node.name, s.phase)), when=condition
        ):
            y.backward(given_gradient)
        stops.append(found)
    assert stops[0] == stops[1]
