"""The command, from the view of a user: real scripts in a subprocess."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

WHERE = """
import torch
from torch import nn

class Act(nn.Module):
    def forward(self, z):
        e = torch.exp(z)
        return torch.where(z > 0, z, e - 1)

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 8), Act(), nn.Linear(8, 1))
loss = model(torch.randn(16, 4) * 300).mean()
loss.backward()
print(model[0].weight.grad.isnan().any().item())
"""

LOG = """
import torch
from torch import nn
torch.manual_seed(0)
model = nn.Linear(4, 2)
p = model(torch.zeros(3, 4)).relu() * 0
logs = p.log()
logs.sum().backward()
"""

SHAPE = """
import sys, torch

class Half(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 0.5
    @staticmethod
    def backward(ctx, g):
        raise ValueError("no backward here")

x = torch.randn(3, requires_grad=True)
y = Half.apply(x * 2)
y.sum().backward()
"""

HEALTHY = """
import sys, torch
from torch import nn
torch.manual_seed(0)
model = nn.Linear(4, 1)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    opt.zero_grad()
    model(torch.randn(8, 4)).square().mean().backward()
    opt.step()
print(sys.argv[1:], __name__, model.weight.sum().item())
sys.exit(7)
"""


def run(
    tmp_path: Path, text: str, *args: str, before: tuple[str, ...] = ()
) -> tuple[subprocess.CompletedProcess, list]:
    script, out = tmp_path / "train.py", tmp_path / "findings.json"
    script.write_text(text)
    command = [sys.executable, "-m", "backprobe", "run", "--findings", str(out), *before, str(script), *args]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=600)
    return done, json.loads(out.read_text())["findings"] if out.exists() else []


def line_of(text: str, part: str) -> int:
    return next(n for n, line in enumerate(text.splitlines(), 1) if part in line)


@pytest.mark.parametrize(
    ("text", "kind", "module", "part"),
    [
        (WHERE, "nonfinite-backward", "1", "torch.exp(z)"),
        (LOG, "nonfinite-forward", "", "p.log()"),
        (SHAPE, "backward-error", "", "Half.apply"),
    ],
)
def test_names_the_line(tmp_path: Path, text: str, kind: str, module: str, part: str) -> None:
    done, findings = run(tmp_path, text)
    assert [f["kind"] for f in findings] == [kind], done.stderr
    assert findings[0]["module"] == module
    assert findings[0]["sites"][0]["role"] == "cause"
    assert findings[0]["sites"][0]["line"] == line_of(text, part)


def test_a_healthy_script_is_as_it_was(tmp_path: Path) -> None:
    done, findings = run(tmp_path, HEALTHY, "--lr", "1")
    alone = subprocess.run(
        [sys.executable, "train.py", "--lr", "1"], capture_output=True, text=True, cwd=tmp_path, timeout=600
    )
    assert findings == []
    assert (done.returncode, done.stdout) == (7, alone.stdout) == (alone.returncode, alone.stdout)


def test_an_error_keeps_its_text_and_gets_a_note(tmp_path: Path) -> None:
    done, _ = run(tmp_path, SHAPE)
    assert done.returncode == 1
    assert "ValueError: no backward here" in done.stderr
    assert "backprobe: backward-error" in done.stderr
    assert "runpy" not in done.stderr


def test_fail_on_sets_the_exit_code(tmp_path: Path) -> None:
    assert run(tmp_path, WHERE)[0].returncode == 0
    assert run(tmp_path, WHERE, before=("--fail-on", "error"))[0].returncode == 3
