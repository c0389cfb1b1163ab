"""tools/torch_suites.py counts a test as kept only if the test ran."""

import subprocess
import sys
from pathlib import Path

TOOL = Path(__file__).parent.parent / "tools" / "torch_suites.py"
PASSES = "import unittest\n\n\nclass Some(unittest.TestCase):\n    def test_one(self):\n        pass\n"


def run(folder: Path, text: str, known: str) -> "subprocess.CompletedProcess[str]":
    (folder / "test_some.py").write_text(text)
    (folder / "plain_test_some.txt").write_text(known)
    command = [sys.executable, str(TOOL), str(folder), "test_some.py", "--plain", str(folder), "--mode", "plain"]
    return subprocess.run(command, capture_output=True, text=True, timeout=600)


def test_a_file_that_cannot_be_loaded_is_an_error(tmp_path: Path) -> None:
    done = run(tmp_path, "import a_module_that_nobody_has\n", "test_some.py::Some::test_one\n")
    assert done.returncode == 2
    assert "test_some.py plain: no test could be run\n" in done.stdout
    assert "No module named 'a_module_that_nobody_has'" in done.stdout


def test_a_listed_test_that_does_not_pass_alone_is_not_compared(tmp_path: Path) -> None:
    done = run(tmp_path, PASSES, "test_some.py::Some::test_one\ntest_some.py::Some::test_gone\n")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "test_some.py plain: 2 pass plain, 0 lost; 1 not compared\n" in done.stdout
    assert "  Some::test_gone: does not pass plain\n" in done.stdout
