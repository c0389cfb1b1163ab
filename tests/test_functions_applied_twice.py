"""Tests of functions that keep state outside ``ctx``, applied twice before a backward."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from forked import found_in

SCRIPT = """
import torch
from torch import nn

KEPT = []
LAST = None
CACHE = {{}}
BUFFER = torch.zeros(8, 4)

class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, layer):
        {keep}
        return x * x

    @staticmethod
    def backward(ctx, grad):
        return 2 * grad * {kept}, None

class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x):
        return Square.apply(self.linear(x), self)

a, b = Layer(), Layer()
optimizer = torch.optim.SGD([*a.parameters(), *b.parameters()], lr=0.01)
for step in range(20):
    x = torch.randn(8, 4)
    {loss}
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
STATES = {
    "class": ("Square.x = x.detach()", "Square.x"),
    "instance": ("layer.saved = (layer, x.detach())\n        ctx.layer = layer", "ctx.layer.saved[1]"),
    "global": ("global LAST\n        LAST = x.detach()", "LAST"),
    "stack": ("KEPT.append(x.detach())", "KEPT.pop()"),
    "dictionary": ('CACHE["x"] = x.detach()', 'CACHE["x"]'),
    "class_of_ctx": ("type(ctx).x = x.detach()", "ctx.x"),
    "setattr": ('setattr(Square, "x", x.detach())', 'getattr(Square, "x")'),
    "buffer": ("BUFFER.copy_(x)\n        ctx.x = BUFFER", "ctx.x"),
    "counter": ("Square.x = getattr(Square, 'x', 0) + 1\n        ctx.save_for_backward(x)", "ctx.saved_tensors[0]"),
    "statistic": ("CACHE['x'] = x.mean(); ctx.save_for_backward(x)", "ctx.saved_tensors[0] + 0 * CACHE['x']"),
    "cache_by_shape": (
        "CACHE[x.shape] = x * 0 + 1; ctx.save_for_backward(x)",
        "ctx.saved_tensors[0] * CACHE[grad.shape]",
    ),
    "context": ("ctx.save_for_backward(x)", "ctx.saved_tensors[0]"),
}
LOSSES = {
    "twice": "loss = (a(x) + a(x.flip(0) * 2)).mean()",
    "two_layers": "loss = (a(x) + b(x)).mean()",
    "chain": "loss = b(a(x)).mean()",
    "once": "loss = a(x).mean()",
    "without_gradients": """
    loss = a(x).mean()
    with torch.no_grad():
        a(x + 1)""",
    "evaluated_before": """
    with torch.no_grad():
        a(x + 1)
    loss = a(x).mean()""",
    "late": "loss = a(x).mean() + (b(x).mean() if step > 14 else 0)",
    "in_turn": "(a(x).mean() * 0.5).backward(); loss = b(x).mean()",
}
SHARED = ("class", "global", "dictionary", "class_of_ctx", "setattr", "buffer")
WRONG = {
    *((state, loss) for state in SHARED for loss in ("twice", "two_layers", "chain", "without_gradients", "late")),
    *(("instance", loss) for loss in ("twice", "without_gradients")),
    ("stack", "without_gradients"),
}
#: States that are tried with every loss, and with ``--check functions``; the others with two losses and without it.
CLOSELY = ("class", "instance", "stack")
CASES = [
    (state, loss, check)
    for state in STATES
    for loss in LOSSES
    for check in ("", "_checked")
    if state in CLOSELY or (loss in ("twice", "late") and not check)
]


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Name -> exit code, findings, and the report."""
    folder, scripts = tmp_path_factory.mktemp("twice"), {}
    for state, loss, check in CASES:
        keep, kept = STATES[state]
        path = folder / f"{state}_{loss}{check}.py"
        path.write_text(SCRIPT.format(keep=keep, kept=kept, loss=LOSSES[loss]))
        scripts[path.stem] = str(path), ["--check", "functions"] if check else []
    return found_in(folder, scripts)


@pytest.mark.parametrize(("state", "loss", "check"), CASES)
def test_state_outside_of_ctx_is_wrong_if_the_script_applies_it_twice(state: str, loss: str, check: str, runs) -> None:
    _, found, report = runs(f"{state}_{loss}{check}")
    assert "internal error" not in report
    found = [one for one in found if one["kind"] != "none-grad"]  # of the layer that is left out
    assert [one["kind"] for one in found] == (["wrong-backward"] if (state, loss) in WRONG else []), report
    if found:
        texts = {site["role"]: site["text"] for site in found[0]["sites"]}
        assert found[0]["confidence"] == "certain" and "Square.apply" in texts["applied"]
        assert texts["cause"] in STATES[state][0]


@pytest.mark.slow
def test_what_a_function_prints_is_printed_as_often_as_alone(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    keep, kept = STATES["class"]
    path.write_text(SCRIPT.format(keep=f'{keep}; print("applied")', kept=kept, loss=LOSSES["twice"]))
    alone, watched = (
        subprocess.run([sys.executable, *how, path], cwd=tmp_path, capture_output=True, text=True, timeout=600)
        for how in ((), ("-m", "backprobe", "run"))
    )
    assert "1. wrong-backward" in watched.stderr
    assert watched.stdout == alone.stdout == "applied\n" * 40
