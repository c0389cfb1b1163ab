"""Untrusted folders: reading a run in one executes no file of the folder."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from corpora import STORED_RUNS_FOLDER

from backprobe.commands import mcp_tools
from backprobe.store import FORMAT

RUN = STORED_RUNS_FOLDER / f"format-{FORMAT}" / "nan"
#: Modules that the reading commands import, of the standard library and of others; and one that a plugin names.
SHADOWED = ("rich", "typing", "json", "sqlite3", "argparse", "collections", "safetensors", "plugged")
PLUGIN = "[backprobe.findings]\nplugged = plugged\n[backprobe.records]\nplugged = plugged\n"


@pytest.fixture
def stranger(tmp_path: Path) -> Path:
    """A folder with a run, and with files that Python would execute if it imported from there."""
    folder = tmp_path / "stranger"
    (folder / "backprobe-runs").mkdir(parents=True)
    shutil.copytree(RUN, folder / "backprobe-runs" / "nan")
    for name in SHADOWED:
        (folder / f"{name}.py").write_text(f"import os; os.mkdir({str(tmp_path / 'executed')!r})\n")
    meta = folder / "plugged-1.0.dist-info"
    meta.mkdir()
    (meta / "METADATA").write_text("Metadata-Version: 2.1\nName: plugged\nVersion: 1.0\n")
    (meta / "entry_points.txt").write_text(PLUGIN)
    return folder


def executed(folder: Path) -> bool:
    return (folder.parent / "executed").exists()


def test_the_tools_for_models_read_a_strangers_run_and_execute_nothing(stranger: Path) -> None:
    here = str(stranger)
    assert json.loads(mcp_tools.findings(folder=here))["findings"][0]["kind"] == "nonfinite-forward"
    assert "nonfinite-forward" in mcp_tools.show("nan", folder=here)
    assert "nonfinite-forward" in mcp_tools.runs(folder=here)
    assert not executed(stranger)


@pytest.mark.parametrize("arguments", [["show"], ["report"], ["runs"], ["top", "--once"]], ids=lambda given: given[0])
def test_python_m_reads_a_strangers_run_and_executes_nothing(stranger: Path, arguments: list[str]) -> None:
    command = [sys.executable, "-m", "backprobe", *arguments]
    (stranger / "collections.py").unlink()  # Python itself imports it for -m, before backprobe is there
    done = subprocess.run(command, cwd=stranger, capture_output=True, text=True, timeout=600)
    assert (done.returncode, done.stderr, executed(stranger)) == (0, "", False)


def test_the_installed_command_executes_nothing(stranger: Path) -> None:
    command = Path(sys.executable).with_name("backprobe")
    done = subprocess.run([command, "show"], cwd=stranger, capture_output=True, text=True, timeout=600)
    assert (done.returncode, done.stderr, executed(stranger)) == (0, "", False)


def test_the_command_gives_a_script_its_own_import_path(tmp_path: Path) -> None:
    """The working directory is not on the import path of reading commands, but a script run there has it."""
    (tmp_path / "helper.py").write_text("print('helped')\n")
    (tmp_path / "train.py").write_text("import helper\n")
    done = subprocess.run(
        [sys.executable, "-m", "backprobe", "run", "--quiet", "train.py"], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.stdout == "helped\n"


def test_names_are_never_options(tmp_path: Path) -> None:
    shutil.copytree(RUN, tmp_path / "backprobe-runs" / "--json")
    assert "no findings" not in mcp_tools.show("--json", folder=str(tmp_path))
    assert mcp_tools.show("--json", folder=str(tmp_path)).lstrip().startswith(mcp_tools.show(folder=str(tmp_path))[:40])
    assert "usage" not in mcp_tools.show("--help", folder=str(tmp_path))
    assert "no kind" in mcp_tools.explain("--help") or "did you mean" in mcp_tools.explain("--help")
    (tmp_path / "-x.py").write_text("import sys\nprint('ran', sys.argv)\n")
    answer = json.loads(mcp_tools.run_script("-x.py", ["--help", "--", "-y"], folder=str(tmp_path)))
    assert answer["stdout"] == "ran ['-x.py', '--help', '--', '-y']\n"
