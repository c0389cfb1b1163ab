"""The names that a script gives to a library as the number of accumulated batches."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from backprobe.observe.trackers.accumulation_names import AccumulationNamesTracker
from backprobe.records import AccumulationNames


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("Accelerator(cpu=True, gradient_accumulation_steps=GATHER)", ("GATHER",)),
        ("pl.Trainer(accumulate_grad_batches=self.config.together)", ("together",)),
        ("given = {'gradient_accumulation_steps': gather, 'lr': rate}", ("gather",)),
        ("Accelerator(gradient_accumulation_steps=8)", ()),
        ("Accelerator(steps=GATHER)", ()),
    ],
)
def test_names_in_a_script(source: str, names: tuple[str, ...], tmp_path: Path, monkeypatch) -> None:
    script = tmp_path / "train.py"
    script.write_text(f"{source}\n")
    monkeypatch.setitem(__import__("sys").modules, "accelerate", SimpleNamespace())
    context = SimpleNamespace(frames=SimpleNamespace(users_files=lambda: [str(script)]))
    assert AccumulationNamesTracker(context).records() == ((AccumulationNames(names),) if names else ())
