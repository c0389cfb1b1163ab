"""Stored runs of the current format: each opens, and what is in it is what was in it when it was written."""

from __future__ import annotations

import json
import math
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from corpora import STORED_RUNS_FOLDER
from stored import digest

from backprobe.store import FORMAT

FOLDERS = sorted(path.parent for path in STORED_RUNS_FOLDER.glob("*/*/run.sqlite"))


def holds(expected: Any, found: Any, at: str = "") -> None:
    """Everything expected is there. A record may have got fields since."""
    if isinstance(expected, dict):
        assert isinstance(found, dict) and set(expected) <= set(found), at
        for key, value in expected.items():
            holds(value, found[key], f"{at}/{key}")
    elif isinstance(expected, list):
        assert isinstance(found, list) and len(expected) == len(found), at
        for i, (one, other) in enumerate(zip(expected, found, strict=True)):
            holds(one, other, f"{at}/{i}")
    elif isinstance(expected, float) and math.isnan(expected):
        assert isinstance(found, float) and math.isnan(found), at
    else:
        assert (expected, type(expected)) == (found, type(found)), at


def test_there_are_runs_of_the_format() -> None:
    assert {path.name for path in STORED_RUNS_FOLDER.iterdir()} == {f"format-{FORMAT}"}
    names = [{path.name for path in folder.iterdir()} for folder in STORED_RUNS_FOLDER.iterdir()]
    assert all(of == {"healthy", "nan", "memory", "ranks", "every"} for of in names)


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_a_stored_run_reads_as_it_was_written(folder: Path, tmp_path: Path) -> None:
    shutil.copy(folder / "run.sqlite", tmp_path)
    holds(json.loads((folder / "expected.json").read_text()), digest(tmp_path))


READ_WITHOUT_TORCH_SCRIPT = """
import sys, time
sys.modules["torch"] = None  # as where it is not installed
from backprobe.commands import main
for folder in sys.argv[1:]:
    assert main(["show", folder]) == 0
    assert main(["show", "--json", folder]) == 0
    assert main(["report", folder]) == 0
"""


def test_the_commands_show_them_without_torch(tmp_path: Path) -> None:
    copies = [shutil.copytree(f, tmp_path / f"{f.parent.name}-{f.name}") for f in FOLDERS]
    done = subprocess.run(
        [sys.executable, "-c", READ_WITHOUT_TORCH_SCRIPT, *copies], capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr
    assert [f.name for f in copies if not (f / "report.html").stat().st_size > 100_000] == []
    for line in ("No problems found.", "log gave 5 NaN of 8 elements", "rank 0 waited 4 s in all_reduce"):
        assert " ".join(done.stdout.split()).count(line) >= 1, line
