"""The source line that changes a setting of an optimizer."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import backprobe
from backprobe.records import Replicas
from backprobe.source.assignments import key_given, scheduler_stepped, writes_to

SCHEDULES = {
    "plateau": "schedule = torch.optim.lr_scheduler.ReduceLROnPlateau(opt)\nopt.step()\nschedule.step(loss)\n",
    "imported": "self.lrs = OneCycleLR(opt, 0.1)\nopt.step()\nself.lrs.step()\n",
    "own": "warm = WarmupScheduler(opt)\nopt.step()\nwarm.step()\n",
}


def frames(tmp_path: Path, code: str) -> Any:
    file = tmp_path / f"train{len(list(tmp_path.iterdir()))}.py"  # what was read of a file is kept
    file.write_text(code)
    return SimpleNamespace(users_files=lambda: [str(file)])


@pytest.mark.parametrize("name", SCHEDULES)
def test_a_schedule_that_is_stepped(tmp_path: Path, name: str) -> None:
    found = scheduler_stepped(frames(tmp_path, SCHEDULES[name]))
    assert found is not None and found.line == 3 and ".step(" in found.text
    assert scheduler_stepped(frames(tmp_path, SCHEDULES[name].splitlines()[1])) is None


@pytest.mark.parametrize("write", ['group["lr"] *= 0.5', 'opt.param_groups[0]["lr"] = rate', 'a, g["lr"] = 1, 2'])
def test_a_key_that_is_written(tmp_path: Path, write: str) -> None:
    found = key_given(frames(tmp_path, f"def slow(opt):\n    print(opt.param_groups[0]['lr'])\n    {write}\n"), "lr")
    assert found is not None and (found.line, found.function, found.text) == (3, "slow", write)
    assert key_given(frames(tmp_path, "value = group['lr']\n"), "lr") is None


MODEL = """\
class Net:
    def __init__(self):
        self.codes.weight.data.uniform_(-1, 1)

    def scaled(self, x):
        x.weight.grad.mul_(2)
        return self.codes.weight * x

def restart(net, dead, new):
    net.codes.weight[dead] = new
    net.head.weight.data.clamp_(-1, 1)
    net.scale += 1
    net.layers[0].weight.copy_(new)
    net.head.weight = new
"""


@pytest.mark.parametrize(
    ("path", "lines"),
    [
        ("codes.weight", [10]),
        ("model.head.weight", [11]),
        ("scale", [12]),
        ("layers.0.weight", [10, 11, 13]),  # no line names the owner so
        ("head.bias", []),
    ],
)
def test_lines_that_write_to_a_parameter(tmp_path: Path, path: str, lines: list[int]) -> None:
    assert [site.line for site in writes_to(frames(tmp_path, MODEL), path)] == lines


def test_parameters_written_since_the_last_step_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The optimizer tracker finds the write in recorded steps and in steps that the budget leaves out."""
    monkeypatch.setattr("backprobe.observe.trackers.replicas.in_use", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_rank", lambda: 1)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 2)
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.BatchNorm1d(3))
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    with backprobe.trace(model, every=7) as trace:
        for step in range(20):
            optimizer.zero_grad()
            model(torch.randn(8, 4)).square().mean().backward()
            optimizer.step()
            if step in (4, 11):
                with torch.no_grad():
                    model[0].weight[0] = 1.0
    (seen,) = trace.facts.of(Replicas)
    ((name, steps, sites),) = seen.changed
    assert (name, steps) == ("0.weight", (5, 12))
    assert [site.text for site in sites] == ["model[0].weight[0] = 1.0"]
