"""The line that gives an optimizer another setting, as the code reads."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from backprobe.source.puts import key_given, scheduler_stepped

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
