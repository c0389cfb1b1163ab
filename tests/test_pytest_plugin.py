"""The plugin for pytest, on suites as people write them, each in a process of its own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from backprobe.integrations.pytest_plugin import Wanted, read_bytes, wanted_of

HEAD = """
import pytest
import torch
from torch import nn

def train(model, steps=2, wrong=False):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(steps):
        optimizer.zero_grad()
        out = model(torch.ones(4, 3))
        loss = (out / 0).sum() if wrong else out.square().mean()
        loss.backward()
        optimizer.step()

class Forgets(nn.Module):
    def __init__(self):
        super().__init__()
        self.used, self.forgotten = nn.Linear(3, 2), nn.Linear(3, 2)
    def forward(self, x):
        return self.used(x)
"""


def suite(folder: Path, text: str, *options: str) -> tuple[int, str]:
    """Exit code and output of pytest on a file of tests."""
    (folder / "test_model.py").write_text(HEAD + textwrap.dedent(text))
    (folder / "pytest.ini").write_text("[pytest]\naddopts = --strict-markers\n")
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "no:xdist", *options, "test_model.py"]
    env = {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "120"}
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=600, env=env)
    return done.returncode, done.stdout + done.stderr


def test_pytest_finds_it() -> None:
    assert [one.value for one in entry_points(group="pytest11") if one.name == "backprobe"] == [
        "backprobe.integrations.pytest_plugin"
    ]


def test_a_watched_suite_fails_with_the_finding_and_its_line(tmp_path: Path) -> None:
    code, said = suite(
        tmp_path,
        """
        def test_healthy():
            train(nn.Linear(3, 1))

        def test_divides():
            train(nn.Linear(3, 1), wrong=True)

        def test_no_torch():
            assert 1 + 1 == 2
        """,
        "--backprobe",
    )
    assert code == 1 and "1 failed, 2 passed" in said, said
    assert "nonfinite-forward  error, certain" in said and "loss = (out / 0).sum() if wrong" in said
    assert "pytest_plugin.py" not in said, said


def test_a_suite_that_asks_for_nothing_is_as_before(tmp_path: Path) -> None:
    text = """
    import sys

    def test_divides():
        assert not any(name.startswith("backprobe.observe") for name in sys.modules)
        train(nn.Linear(3, 1), wrong=True)
        assert not any(name.startswith("backprobe.observe") for name in sys.modules)
    """
    code, said = suite(tmp_path, text)
    assert code == 0 and "1 passed" in said, said


def test_expected_failures_of_a_test_are_no_findings(tmp_path: Path) -> None:
    text = """
    def test_raises():
        x = torch.ones(3, requires_grad=True)
        y = x.exp()
        y.add_(1)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            y.sum().backward()

    def test_raises_and_is_wrong():
        x = torch.ones(3, requires_grad=True)
        loss = x.exp().sum()
        loss.backward()
        with pytest.raises(RuntimeError):
            loss.backward()
        train(nn.Linear(3, 1), wrong=True)

    @pytest.mark.xfail(strict=True)
    def test_fails_as_expected():
        train(nn.Linear(3, 1), wrong=True)
        assert False
    """
    code, said = suite(tmp_path, text, "--backprobe")
    assert code == 1 and "1 failed, 1 passed, 1 xfailed" in said, said
    assert "nonfinite-forward" in said and "second-backward" not in said


def test_a_test_that_fails_has_the_findings_beside_its_error(tmp_path: Path) -> None:
    text = """
    def test_raises():
        x = torch.ones(3, requires_grad=True)
        y = x.exp()
        y.add_(1)
        y.sum().backward()

    def test_skips():
        pytest.skip("not today")
    """
    code, said = suite(tmp_path, text, "--backprobe")
    assert code == 1 and "1 failed, 1 skipped" in said, said
    assert "Captured backprobe call" in said and "> " in said and "inplace  error, certain" in said
    assert "observe/forward/torch_call_recorder.py" not in said and "pytest_plugin.py" not in said, said


def test_markers_say_what_has_to_hold(tmp_path: Path) -> None:
    text = """
    @pytest.mark.backprobe(every_parameter_learns=True)
    def test_learns():
        train(nn.Linear(3, 1))

    @pytest.mark.backprobe(every_parameter_learns=True, fail_on=None)
    def test_forgets():
        train(Forgets())

    @pytest.mark.backprobe(every_parameter_learns=True)
    def test_cuts():
        model = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 1))
        model[1](model[0](torch.ones(2, 3)).detach()).sum().backward()  # the cut

    @pytest.mark.backprobe(max_saved="1 KB")
    def test_small():
        train(nn.Linear(3, 1))

    @pytest.mark.backprobe(max_saved="1 KB")
    def test_big():
        train(nn.Sequential(nn.Linear(3, 512), nn.Tanh(), nn.Linear(512, 1)))

    @pytest.mark.backprobe(allow="nonfinite-forward")
    def test_allowed():
        train(nn.Linear(3, 1), steps=1, wrong=True)

    @pytest.mark.backprobe(fail_on="warning")
    def test_warns():
        kept = []
        model = nn.Linear(3, 1)
        for _ in range(12):
            loss = model(torch.ones(2, 3)).square().mean()
            loss.backward(retain_graph=True)
            kept.append(loss)

    def test_unmarked():
        train(nn.Linear(3, 1), wrong=True)
    """
    code, said = suite(tmp_path, text)
    failed = re.findall(r"^FAILED test_model.py::(\w+)", said, re.MULTILINE)
    assert code == 1 and failed == ["test_forgets", "test_cuts", "test_big", "test_warns"], said
    assert "got no gradient that is not zero: forgotten.weight, forgotten.bias (2 of 4 parameters)" in said
    assert "got no gradient that is not zero: 0.weight, 0.bias (2 of 4 parameters)" in said
    assert "none-grad  warning" in said and re.search(r"^ *> +\d+ +model\[1\].*# the cut", said, re.MULTILINE), said
    assert "for a backward; max_saved is 1000 B" in said, said
    assert "graph-retained" in said


def test_a_marker_keeps_what_those_around_it_ask_for(tmp_path: Path) -> None:
    text = """
    @pytest.mark.backprobe(fail_on="warning")
    class TestAll:
        @pytest.mark.backprobe(max_saved="1 GB")
        def test_warns(self):
            kept, model = [], nn.Linear(3, 1)
            for _ in range(12):
                loss = model(torch.ones(2, 3)).square().mean()
                loss.backward(retain_graph=True)
                kept.append(loss)
    """
    code, said = suite(tmp_path, text)
    assert code == 1 and "1 failed" in said and "graph-retained  warning" in said, said


def test_the_fixture_has_the_trace(tmp_path: Path) -> None:
    text = """
    def test_reads(backprobe):
        train(nn.Linear(3, 1), steps=3, wrong=True)
        assert [f.kind for f in backprobe.findings] == ["nonfinite-forward"]
        assert len(backprobe.trace.steps) == 3
        train(nn.Linear(3, 1))
        assert len(backprobe.trace.steps) == 3

    def test_gradients_are_its_own(backprobe):
        model = nn.Linear(3, 1)
        train(model)
        assert backprobe.trace["weight"].grad_norm > 0
    """
    code, said = suite(tmp_path, text)
    assert code == 0 and "2 passed" in said, said


@pytest.mark.parametrize(
    ("mark", "words"),
    [
        ("fail_on='fatal'", "fail_on is 'fatal'; it is one of 'error', 'warning', 'info' and None"),
        ("max_saved='much'", "'much' is not a number of bytes"),
        ("max_save='1 MB'", "unknown argument 'max_save'; there are fail_on, allow, max_saved"),
        ("'error'", "arguments with names only"),
    ],
)
def test_a_marker_that_cannot_be_is_refused(tmp_path: Path, mark: str, words: str) -> None:
    code, said = suite(tmp_path, f"@pytest.mark.backprobe({mark})\ndef test_one():\n    pass\n")
    assert code != 0 and words in said, said


def test_sizes_and_arguments() -> None:
    assert [read_bytes(text) for text in ("200 MB", "1.5GiB", "3 b", 7)] == [2e8, 1.5 * 2**30, 3.0, 7.0]
    assert wanted_of({"allow": "a", "checks": ["b"]}, Wanted()) == Wanted(allow=("a",), checks=("b",))


REPORTED = """
    def test_healthy():
        train(nn.Linear(3, 1))

    def test_divides():
        train(nn.Linear(3, 1), wrong=True)

    @pytest.mark.backprobe(every_parameter_learns=True)
    def test_learns():
        train(Forgets())

    def test_divides_and_fails():
        train(nn.Linear(3, 1), wrong=True)
        assert False, "of its own"
"""


def test_findings_are_reported_and_fail_no_test(tmp_path: Path) -> None:
    code, said = suite(tmp_path, REPORTED, "--backprobe=report")
    assert code == 1 and "1 failed, 3 passed" in said  # the one that fails without us
    before, told = re.split("^=+ backprobe =+$", said, flags=re.MULTILINE)
    assert re.findall(r"^test_model.py::(\w+)$", told, re.MULTILINE) == ["test_divides", "test_learns"]
    assert "loss = (out / 0).sum() if wrong else out.square().mean()" in told
    assert "got no gradient that is not zero: forgotten.weight" in told
    assert "Captured backprobe call" in before  # beside the failure of its own


def test_a_report_without_findings(tmp_path: Path) -> None:
    code, said = suite(tmp_path, "def test_healthy():\n    train(nn.Linear(3, 1))", "--backprobe=report")
    assert code == 0 and "no findings in tests that passed" in said
    code, said = suite(tmp_path, "def test_healthy():\n    train(nn.Linear(3, 1))")
    assert code == 0 and "backprobe =" not in said
