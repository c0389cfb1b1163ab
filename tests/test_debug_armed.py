"""Armed breakpoints: their hooks on the graph, and a cheap pre-check that rules out no true condition."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import backprobe
from backprobe.engine.control import Control
from backprobe.engine.provenance import Forward
from backprobe.observe.backward.node_hook_set import NodeHookSet


def hooks_while_running(monkeypatch, **where) -> tuple[int, int]:
    """Hooks that a breakpoint puts on the nodes of a backward, and the nodes."""
    counts = []
    attach = Control.attach

    def counting(self) -> None:
        attach(self)
        counts.append((len(self._hooks), len(self.graph)))

    monkeypatch.setattr(Control, "attach", counting)
    model = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1))
    with backprobe.breakpoint_backward(action=lambda stop: None, **where):
        model(torch.randn(4, 2)).sum().backward()
    return counts[0]


@pytest.mark.parametrize("where", [{"node": "NoSuch*"}, {"module": "no.such"}, {"parameter": "none"}])
def test_one_hook_a_node_and_no_recorder(where, monkeypatch, capsys) -> None:
    def recorded(*given) -> None:
        raise AssertionError("a recorder was put on the graph")

    monkeypatch.setattr(NodeHookSet, "start", recorded)
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


def stops(when: str, backward) -> list[tuple[str, str]]:
    """Return the name and phase of each stop of a breakpoint with the condition `when` during `backward`."""
    found: list[tuple[str, str]] = []
    with backprobe.breakpoint_backward(action=lambda s: found.append((s.node.name, s.phase)), when=when):
        backward()
    return found


@pytest.mark.parametrize("limit", [1e-3, 0.5, 1, 3, 10, 40, 200, 1e5])
def test_nodes_that_return_their_input(limit) -> None:
    """Views, sums, transposed weights: norms that are taken over from one gradient to the next are those of it."""

    def backward() -> None:
        torch.manual_seed(1)
        net, x = nn.Linear(4, 4), torch.randn(6, 4, requires_grad=True)
        y = net(x) + x
        z = (y.t().reshape(-1)[3:] - 2 * net(y).view(-1)[3:]).unsqueeze(0)
        (z * 5 + z.sin()).sum().backward()

    assert stops(f"norm > {limit}", backward) == stops(f"(lambda: norm > {limit})()", backward)


def test_after_a_node_that_only_reshapes_nobody_looks_where_nothing_came_in(monkeypatch) -> None:
    hooks, nodes = hooks_while_running(monkeypatch, when="norm > 1e9")
    assert hooks == 2 * nodes - 2 - 4  # two transposed weights; four accumulators, out of which nothing goes


@pytest.mark.parametrize("where", ["node", "view", "before", "tensor"])
def test_what_others_write_unseen_by_torch_is_measured(where) -> None:
    """A hook that writes with ``.data`` leaves the version of a gradient as it is."""

    def grow(*gradients) -> None:
        grads = gradients[0] if isinstance(gradients[0], tuple) else gradients
        grads[0].data.mul_(1e6)

    def backward() -> None:
        x = torch.ones(3, requires_grad=True)
        y = (x * 2).view(3, 1)
        z = y + 1
        made = {"node": z.grad_fn.register_hook, "view": y.grad_fn.register_hook}
        hooks = {**made, "before": z.grad_fn.register_prehook, "tensor": y.register_hook}
        hooks[where](grow)
        (z.neg() * 1.5).sum().backward()

    screened, asked = (stops(when, backward) for when in ("norm > 1e3", "(lambda: norm > 1e3)()"))
    assert set(screened) <= set(asked)
    if where == "node":
        assert screened == asked and ("AddBackward0", "after") in screened
    if where == "view":
        assert ("MulBackward0", "before") in screened


def test_a_module_without_nodes_is_not_searched_at_each_node(monkeypatch, capsys) -> None:
    def looked(*given) -> None:
        raise AssertionError("every node was asked for its place")

    model = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1))
    model(torch.randn(4, 2)).sum().backward()
    with backprobe.breakpoint_backward(action=lambda stop: None, model=model, module="no.such"):
        model(torch.randn(4, 2)).sum().backward()
        monkeypatch.setattr(Forward, "places", looked)
        model(torch.randn(4, 2)).sum().backward()
    assert "cannot stop" in capsys.readouterr().err
