"""Commands without a test file of their own, and invalid options."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from backprobe.commands import main

SCRIPT = """
import sys
import torch
torch.manual_seed(0)
model = torch.nn.Linear(3, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(int(sys.argv[1])):
    optimizer.zero_grad()
    model(torch.randn(4, 3)).square().mean().backward()
    optimizer.step()
print(model.weight.tolist(), torch.rand(1).item())
"""


def python(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=600, env=environment)


def test_bench_compares_the_tools_and_changes_nothing(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    plain = python(tmp_path, "train.py", "300")
    done = python(tmp_path, "-m", "backprobe", "bench", "train.py", "300")
    assert (done.returncode, done.stdout) == (0, plain.stdout), done.stderr
    assert "against the plain step, 300 steps, by lot" in done.stderr
    found = re.findall(r"^ *(plain|minimal|nodes|detect_anomaly) +([\d.]+) +[\d.]+ to [\d.]+ +(\d+)", done.stderr, re.M)
    assert [tool for tool, *_ in found] == ["plain", "minimal", "nodes", "detect_anomaly"], done.stderr
    # Each step but those of the warm-up is of one tool; a plain one is by its median as long as a plain one.
    assert sum(int(count) for *_, count in found) == 300 - 49 and found[0][1] == "1.000"


def test_bench_of_too_few_steps(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    done = python(tmp_path, "-m", "backprobe", "bench", "train.py", "60")
    assert done.returncode == 2
    assert done.stderr == ("backprobe: 60 optimizer steps are too few to compare 4 tools: let the script run longer\n")


def test_demo_runs_an_example(tmp_path: Path) -> None:
    done = python(tmp_path, "-m", "backprobe", "demo", "lstm_broken")
    assert done.returncode == 0 and done.stdout.startswith("$ backprobe run lstm_broken.py\n"), done.stderr
    assert "\n1. " in done.stderr and (tmp_path / "backprobe-runs").is_dir()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["run", "--every", "0", "train.py"], "argument --every: 0 is not 1 or more"),
        (["run", "--steps", "5", "train.py"], "argument --steps: '5' is not A:B with 0 <= A < B"),
        (["run", "--steps", "a:b", "train.py"], "argument --steps: 'a:b' is not A:B with 0 <= A < B"),
        (["run", "--steps", "5:5", "train.py"], "argument --steps: '5:5' is not A:B with 0 <= A < B"),
        (["run", "--check", "nothing", "train.py"], "argument --check: invalid choice: 'nothing' (choose from "),
        (["rnu", "train.py"], "there is no command 'rnu': did you mean run? (see backprobe --help)"),
        (
            ["run", "--budgt", "5%", "train.py"],
            "there is no option --budgt: did you mean --budget? (see backprobe run ",
        ),
        (["doctor", "extra"], "unrecognized arguments: extra (see backprobe --help)"),
        (["run", "--wat", "train.py"], "there is no option --wat (see backprobe run --help)"),
        (["run", "--level", "nods", "train.py"], "argument --level: invalid choice: 'nods': did you mean nodes? (see "),
        (["demo", "nothing"], "no example 'nothing'; there are convnet, "),
        (["show"], "no runs in backprobe-runs/ to show: name the folder of one"),
        (["report"], "no runs in backprobe-runs/ to show: name the folder of one"),
    ],
)
def test_wrong_use_is_one_line(
    arguments: list[str], says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("raise SystemExit('it ran')")
    assert main(arguments) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.startswith(f"backprobe: {says}") and err.count("\n") == 1


def test_without_a_command_it_prints_its_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    alone = capsys.readouterr().out
    with pytest.raises(SystemExit):
        main(["--help"])
    assert alone == capsys.readouterr().out and alone.startswith("usage: backprobe ")


def test_the_options_of_run_are_in_groups(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["run", "--help"])
    titles = re.findall(r"^([\w ]+):$", capsys.readouterr().out, re.MULTILINE)
    assert titles[2:] == ["Output", "What to record", "Overhead", "Alarms", "Trackers", "CI", "Comparing runs"]
