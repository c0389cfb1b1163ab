"""Tests of the cause of a loss without a graph: frozen parameters, or gradient mode that was off."""

from __future__ import annotations

import textwrap

import pytest
from forked import found_in

#: Name -> a training loop, the kind of the only finding, a part of its main line, and its confidence.
CASES = {
    "frozen, and a metric without gradients": (
        """
        for step in range(30):
            if step == 5:
                net.requires_grad_(False)
            x = torch.randn(8, 4)
            with torch.no_grad():
                metric = net(x).mean()
            train(net(x).square().mean())
        """,
        *("none-grad", "net.requires_grad_(False)", "certain"),
    ),
    "frozen in a step that is not recorded": (
        """
        for step in range(60):
            if step == 57:
                net.requires_grad_(False)
            x = torch.randn(8, 4)
            with torch.no_grad():
                metric = net(x).mean()
            train(net(x).square().mean())
        """,
        *("none-grad", "net.requires_grad_(False)", "likely"),
    ),
    "frozen by a helper": (
        """
        def set_requires_grad(module, flag):
            for p in module.parameters():
                p.requires_grad = flag

        set_requires_grad(net, True)
        for step in range(60):
            if step == 57:
                set_requires_grad(net, False)
            train(net(torch.randn(8, 4)).square().mean())
        """,
        *("none-grad", "set_requires_grad(net, False)", "likely"),
    ),
    "gradient mode left off in a step that is not recorded": (
        """
        def evaluate():
            torch.set_grad_enabled(False)
            return net(torch.randn(8, 4)).mean()

        for step in range(60):
            train(net(torch.randn(8, 4)).square().mean())
            if step == 57:
                evaluate()
        """,
        *("grad-mode-disabled", "torch.set_grad_enabled(False)", "likely"),
    ),
    "gradient mode off for the loss, then again for a metric": (
        """
        for step in range(8):
            x = torch.randn(8, 4)
            with torch.set_grad_enabled(step < 5):
                loss = net(x).square().mean()
            with torch.no_grad():
                metric = loss * 2
            train(loss)
        """,
        *("grad-mode-disabled", "with torch.set_grad_enabled(step < 5):", "certain"),
    ),
    "detached, and a metric without gradients": (
        """
        for step in range(60):
            x = torch.randn(8, 4)
            out = net(x).detach() if step == 57 else net(x)
            with torch.no_grad():
                metric = net(x).mean()
            train(out.square().mean())
        """,
        *("none-grad", "optimizer.zero_grad(); loss.backward(); optimizer.step()", "certain"),
    ),
}
SETUP = """
import torch
from torch import nn

net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)

def train(loss):
    optimizer.zero_grad(); loss.backward(); optimizer.step()
"""


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Name -> exit code, findings, and the report."""
    folder, scripts = tmp_path_factory.mktemp("lost_graph"), {}
    for name, (loop, *_) in CASES.items():
        path = folder / f"{name.replace(' ', '_')}.py"
        path.write_text(SETUP + textwrap.dedent(loop))
        scripts[name] = str(path), ["--every", "50" if "not recorded" in name or "helper" in name else "1"]
    return found_in(folder, scripts)


@pytest.mark.parametrize("name", CASES)
def test_the_cause_of_a_loss_without_a_graph(name: str, runs) -> None:
    _, kind, line, confidence = CASES[name]
    _, found, report = runs(name)
    assert "internal error" not in report
    assert [one["kind"] for one in found] == [kind], report
    assert (found[0]["confidence"], line in found[0]["sites"][0]["text"]) == (confidence, True), report
