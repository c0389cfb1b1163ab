"""Print which tests hold each threshold of backprobe/thresholds.py from above and from below.

    python tools/thresholds.py                          # all thresholds: takes long, since trackers train models
    python tools/thresholds.py --rules                  # those that only findings use: their tests are fast
    python tools/thresholds.py MASK_HIDDEN_SCORE ...    # these thresholds
    python tools/thresholds.py --held-by-none           # print only those that no test holds in either direction

Each threshold is set to a larger and to a smaller value: twice and half of it, or one more and one less if it is a
small whole number. A test that fails with the larger value holds the threshold from above, since it needs that the
threshold is not larger; one that fails with the smaller value holds it from below.

Which tests are run, for each module that uses a threshold:

- of a rule, the tests in the folder of its kind;
- of a module that several rules share, the tests in the folders of those that import it;
- of a tracker and of other modules, ``tests/test_NAME.py``, the tests that import the module, and those in
  ``EXERCISED_BY``, which exercise it by a script.

The tests run in child processes, which set the value before any other module of the package is imported. Tests that are
slow or long are left out, unless `--long` is given.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import signal
import sys
import tempfile
import traceback
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import hypothesis  # noqa: F401  # child processes need it
import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "backprobe"
#: Whole numbers up to this one are changed by one.
MAX_CHANGED_BY_ONE = 12
#: Seconds after which tests with a changed threshold count as failed.
TIMEOUT_S = 600
#: Module -> tests that exercise it by a script, and have another name.
EXERCISED_BY = {
    "findings/rank_outlier/rule.py": ("tests/test_outliers.py",),
    "observe/ledger/account.py": ("tests/test_ledger.py",),
    "observe/ledger/changes.py": ("tests/test_ledger_changes.py",),
    "observe/ledger/stays.py": ("tests/test_ledger_changes.py", "tests/test_gradient_clipping.py"),
    "observe/statistics/loss_growth.py": ("tests/test_learning_rates.py",),
    "observe/trackers/collapsed_embeddings.py": ("tests/test_loss_targets.py",),
    "observe/trackers/collective_wait.py": ("tests/test_desync.py",),
    "observe/trackers/compiled_norms.py": ("tests/test_compiled_growth.py",),
    "observe/trackers/frozen_mode_lines.py": ("tests/test_frozen_modes.py",),
    "observe/trackers/retained.py": ("tests/test_retained_count.py",),
    "observe/trackers/stopped_learning.py": (
        "tests/test_second_phases.py",
        "tests/test_thawed_unseen.py",
        "tests/test_lost_graph.py",
    ),
    "traces/collective_desync.py": ("tests/test_desync.py",),
    "traces/ledger.py": ("tests/test_report_ledger.py", "tests/test_report_changes.py"),
}


@dataclass(frozen=True)
class Held:
    """The tests that fail if a threshold is larger, and if it is smaller; ``None`` if there are no tests to run."""

    name: str
    value: float
    larger: tuple[float, list[str]] | None
    smaller: tuple[float, list[str]] | None

    @property
    def is_held(self) -> bool:
        """Whether a test fails in either direction."""
        return any(side and side[1] for side in (self.larger, self.smaller))


def thresholds_by_name() -> dict[str, float]:
    """Return the thresholds of the table, in its order."""
    found: dict[str, float] = {}
    exec(compile((PACKAGE / "thresholds.py").read_text(encoding="utf-8"), "thresholds.py", "exec"), {}, found)
    return {name: value for name, value in found.items() if name.isupper()}


def changed(value: float) -> tuple[float, float]:
    """Return the larger and the smaller value that a threshold is set to."""
    if isinstance(value, int) and 0 < value <= MAX_CHANGED_BY_ONE:
        return value + 1, value - 1
    twice, half = (value * 2, value // 2) if isinstance(value, int) else (value * 2, value / 2)
    return (twice, half) if value > 0 else (half, twice)


def users() -> dict[str, list[str]]:
    """Return the modules that use each threshold, as paths in the package."""
    found: dict[str, list[str]] = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        if path.name.startswith("test_") or path.is_relative_to(PACKAGE / "examples"):
            continue
        text = path.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(text)) if "thresholds" in text else ():
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "thresholds":
                modules = found.setdefault(node.attr, [])
                module = path.relative_to(PACKAGE).as_posix()
                if module not in modules:
                    modules.append(module)
    return found


def imported_modules(path: Path, text: str) -> Iterator[str]:
    """Yield the dotted names that a file imports: of modules, and of what is in them."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                folder = path.parents[node.level - 1]
                base = ".".join([*folder.relative_to(ROOT).parts, *([base] if base else [])])
            yield base
            yield from (f"{base}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


class TestFinder:
    """Finds the tests of a module."""

    def __init__(self) -> None:
        rules = [path for path in (PACKAGE / "findings").glob("*/*.py") if not path.name.startswith("test_")]
        self._texts = {path: path.read_text(encoding="utf-8") for path in (*rules, *(ROOT / "tests").glob("test_*.py"))}
        self._imported: dict[Path, set[str]] = {}

    def of(self, module: str) -> list[str]:
        """Return the test files of a module of the package, relative to the repository."""
        path = PACKAGE / module
        found = [path.parent] if path.parent.parent == PACKAGE / "findings" else []
        for user in self._users(path):
            if user.is_relative_to(ROOT / "tests"):
                found.append(user)
            elif module.startswith("findings/"):
                found.append(user.parent)
        found += [ROOT / "tests" / f"test_{path.stem}.py", *(ROOT / test for test in EXERCISED_BY.get(module, ()))]
        files = [file for one in found for file in (sorted(one.glob("test_*.py")) if one.is_dir() else [one])]
        return list(dict.fromkeys(file.relative_to(ROOT).as_posix() for file in files if file.exists()))

    def _users(self, module: Path) -> Iterator[Path]:
        """Yield the rules and tests that import a module."""
        dotted = ".".join(module.relative_to(ROOT).with_suffix("").parts)
        for path, text in sorted(self._texts.items()):
            if module.stem not in text:
                continue
            if path not in self._imported:
                self._imported[path] = set(imported_modules(path, text))
            if dotted in self._imported[path]:
                yield path


class FailureCollector:
    """A pytest plugin that collects the tests that fail, and files that cannot be collected."""

    def __init__(self) -> None:
        self.failed: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and report.nodeid not in self.failed:
            self.failed.append(report.nodeid)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.failed.append(report.nodeid)


def run_tests(tests: list[str], name: str, value: float, with_long: bool) -> list[str]:
    """Set a threshold, run tests and return those that fail. The package must not have been imported yet."""
    assert "backprobe" not in sys.modules
    from backprobe import thresholds

    assert hasattr(thresholds, name)
    setattr(thresholds, name, value)
    collector = FailureCollector()
    marks = "not slow and not gpu" if with_long else "not slow and not long and not gpu"
    options = ["-p", "no:cacheprovider", "-q", "-m", marks, "--tb=no", "--rootdir", str(ROOT)]
    options += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]  # of modules that the parent process has imported
    code = pytest.main([*options, *tests], plugins=[collector])
    if code not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.NO_TESTS_COLLECTED):
        collector.failed.append(f"pytest itself: {code!r}")
    return collector.failed


def failures(tests: list[str], name: str, value: float, with_long: bool) -> list[str]:
    """Return the tests that fail if the threshold `name` has `value`.

    They run in a child process, so that the package is imported anew. A fork is faster than a new interpreter: pytest
    and hypothesis have been imported.
    """
    with tempfile.TemporaryFile("w+") as result, tempfile.TemporaryFile("w+") as output:
        child = os.fork()
        if child == 0:
            try:
                signal.alarm(TIMEOUT_S)
                os.dup2(output.fileno(), 1)
                os.dup2(output.fileno(), 2)
                json.dump(run_tests(tests, name, value, with_long), result)
                result.flush()
            except BaseException:
                traceback.print_exc()
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(0)
        _, status = os.waitpid(child, 0)
        if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGALRM:
            return [f"no end in {TIMEOUT_S} s"]
        result.seek(0)
        text = result.read()
        if not text:
            output.seek(0)
            raise SystemExit(f"pytest failed with {name} = {value!r}:\n{output.read()[-3000:]}")
        return list(json.loads(text))


def examine(name: str, value: float, tests: list[str], with_long: bool) -> Held:
    """Run the tests of a threshold with a larger and a smaller value."""
    if not tests:
        return Held(name, value, None, None)
    larger, smaller = changed(value)
    return Held(
        name,
        value,
        (larger, failures(tests, name, larger, with_long)),
        (smaller, failures(tests, name, smaller, with_long)),
    )


def report(held: Held, modules: Iterable[str]) -> str:
    """Return the lines about a threshold."""
    lines = [f"{held.name} = {held.value!r}  ({', '.join(modules)})"]
    for words, side in (("from above", held.larger), ("from below", held.smaller)):
        if side is None:
            lines.append(f"  {words}: no tests of these modules were found")
            continue
        value, tests = side
        more = f" and {len(tests) - 1} more" if len(tests) > 1 else ""
        lines.append(f"  {words} ({value!r}): {tests[0] + more if tests else 'held by no test'}")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description="Print the tests that hold each threshold.")
    parser.add_argument("names", nargs="*", help="thresholds; all if none is given")
    parser.add_argument("--rules", action="store_true", help="only thresholds that only modules of findings/ use")
    parser.add_argument("--held-by-none", action="store_true", help="print only thresholds that no test holds")
    parser.add_argument("--long", action="store_true", help="run long tests, too")
    options = parser.parse_args()
    values, used_by, finder = thresholds_by_name(), users(), TestFinder()
    unknown = sorted(set(options.names) - set(values))
    if unknown:
        parser.error(f"backprobe/thresholds.py has no {', '.join(unknown)}")
    names = [
        name
        for name in options.names or values
        if not options.rules or all(module.startswith("findings/") for module in used_by.get(name, ()))
    ]

    if not options.rules:
        import torch  # noqa: F401  # child processes need it
    os.chdir(ROOT)
    sys.path.insert(0, str(ROOT))
    os.environ["OMP_NUM_THREADS"] = "1"
    os.environ["PYTHONPATH"] = str(ROOT)  # of processes that tests start
    free = 0
    for name in names:
        tests = list(dict.fromkeys(test for module in used_by.get(name, ()) for test in finder.of(module)))
        held = examine(name, values[name], tests, options.long)
        free += not held.is_held
        if not (options.held_by_none and held.is_held):
            print(report(held, used_by.get(held.name, ())), flush=True)
    print(f"{len(names)} thresholds, {free} of which no test holds in either direction")
    return 0


if __name__ == "__main__":
    sys.exit(main())
