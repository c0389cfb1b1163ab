"""Tests of the lines that a refused operation of the forward is explained with."""

from __future__ import annotations

import textwrap

import pytest
from forked import found_in

#: Name -> the forward, the kind of the finding, and parts of its first two lines.
CASES = {
    "chunk": ("a, b = net(x).chunk(2, -1)\na += 1.0\nout = a * b", "forward-error", "a += 1.0", "chunk"),
    "helper": (
        """
        def gate(v):
            v.mul_(0.5)

        q, k = torch.split(net(x), 4, -1)
        gate(q)
        out = q * k
        """,
        *("forward-error", "v.mul_(0.5)", "torch.split"),
    ),
    "rows": ("h = net(x)\nfor row in h:\n    row += 1\nout = h", "forward-error", "row += 1", "for row in h:"),
    "subscript": (
        "rows = net(x).unbind(0)\nrows[0][1:].mul_(2)\nout = torch.stack(rows)",
        *("forward-error", "rows[0][1:].mul_(2)", "unbind"),
    ),
    "module": (
        "a, b = net(x).chunk(2, -1)\nout = nn.ReLU(inplace=True)(a) * b",
        *("forward-error", "nn.ReLU(inplace=True)", "chunk"),
    ),
    "leaf": ("w = net.weight\nw += 0.1\nout = net(x)", "forward-error", "w += 0.1", "w = net.weight"),
    "row_of_leaf": ("net.weight[0] = 1.0\nout = net(x)", "forward-error", "net.weight[0] = 1.0", None),
    "view_under_no_grad": (
        "h = net(x)\nwith torch.no_grad():\n    v = h[0]\nv += 1\nout = h",
        *("forward-error", "v += 1", "v = h[0]"),
    ),
    "inference": (
        "with torch.inference_mode():\n    h = net(x)\nh += 1\nout = net(h)",
        *("forward-error", "h += 1", "torch.inference_mode()"),
    ),
    "inference_saved": (
        "with torch.inference_mode():\n    h = net(x)[:, :4] * 1\nout = net(h)",
        *("grad-mode-disabled", "torch.inference_mode()", "out = net(h)"),
    ),
    "copied": (
        "import copy\nnet.kept = net(x)\ncopy.deepcopy(net)\nout = net.kept",
        *("forward-error", "copy.deepcopy(net)", "net.kept = net(x)"),
    ),
    "copied_from_a_list": (
        "import copy\nnet.kept = [net(x)]\ncopy.deepcopy(net)\nout = net.kept[0]",
        *("forward-error", "copy.deepcopy(net)", "net.kept = [net(x)]"),
    ),
    "flag": ("h = net(x)\nh.requires_grad = False\nout = net(x)", "forward-error", "requires_grad = False", "h = net"),
    "out": (
        "buffer = torch.empty(3, 8)\ntorch.mul(net(x), 2, out=buffer)\nout = buffer",
        *("forward-error", "out=buffer", "torch.empty"),
    ),
}
#: A script in which the error of the first case is handled.
HANDLED = """
    a, b = net(x).chunk(2, -1)
    try:
        a += 1
    except RuntimeError:
        a = a + 1
    out = a * b
"""
SCRIPT = """
import torch
from torch import nn

net = nn.Linear(4, 8)
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
for step in range(60):
    x = torch.randn(3, 4)
    if step < {first}:
        out = net(x)
    else:
{forward}
    loss = out.square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Name -> exit code, findings, and the report."""
    folder, scripts = tmp_path_factory.mktemp("refused"), {}
    forwards = {name: case[0] for name, case in CASES.items()} | {"handled": HANDLED}
    for name, forward in forwards.items():
        for when, (first, every) in {"first": (0, 1), "late": (57, 50)}.items():
            path = folder / f"{name}_{when}.py"
            body = textwrap.indent(textwrap.dedent(forward), " " * 8)
            path.write_text(SCRIPT.format(first=first, forward=body))
            scripts[path.stem] = str(path), ["--every", str(every)]
    return found_in(folder, scripts)


@pytest.mark.parametrize("when", ["first", "late"])
@pytest.mark.parametrize("name", CASES)
def test_the_lines_of_a_refused_operation(name: str, when: str, runs) -> None:
    _, kind, first, second = CASES[name]
    code, found, report = runs(f"{name}_{when}")
    assert code == 1 and "internal error" not in report
    assert [one["kind"] for one in found] == [kind], report
    texts = [site["text"] for site in found[0]["sites"]]
    assert first in texts[0], report
    assert second is None or second in texts[1], report
    if when == "late":
        assert found[0]["step"] == 57


@pytest.mark.parametrize("when", ["first", "late"])
def test_an_error_that_the_script_handles_is_no_finding(when: str, runs) -> None:
    code, found, report = runs(f"handled_{when}")
    assert (code, found) == (0, []), report
