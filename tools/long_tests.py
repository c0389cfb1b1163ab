"""Choose the tests that `make test` leaves to `make test-all`, from measured durations.

    pytest --junitxml=report.xml ...               # run the tests that are not slow
    python tools/long_tests.py report.xml          # write tests/long_tests.txt: the tests that took long
    python tools/long_tests.py --check             # fails if the list names a test that does not exist

`tests/conftest.py` marks the tests of the list as `long`. A test that is not in the list runs in `make test`.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parent.parent
LIST = ROOT / "tests" / "long_tests.txt"
#: Seconds from which on a test is long: the others take about five minutes on two cores.
MIN_LONG_S = 0.6


def durations(report: Path) -> dict[str, float]:
    """Return the seconds of each test of a JUnit report, by its id: file, two colons, name."""
    seconds: dict[str, float] = {}
    for case in ElementTree.parse(report).iter("testcase"):
        module = case.get("classname", "").removeprefix("tests.")
        seconds[f"{module}.py::{case.get('name')}"] = float(case.get("time", 0.0))
    return seconds


def collected() -> set[str]:
    """Return the ids of all tests that pytest collects."""
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "--collect-only", "--no-header", "tests"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return {line.removeprefix("tests/") for line in run.stdout.splitlines() if "::" in line}


def main() -> int:
    parser = argparse.ArgumentParser(description="Choose the tests that make test leaves to make test-all.")
    parser.add_argument("report", type=Path, nargs="?", help="a JUnit report of the tests that are not slow")
    parser.add_argument("--seconds", type=float, default=MIN_LONG_S, help="from how many seconds on a test is long")
    parser.add_argument("--check", action="store_true", help="check that every test of the list exists")
    options = parser.parse_args()
    if options.check:
        gone = sorted(set(LIST.read_text(encoding="utf-8").splitlines()) - collected())
        for test in gone:
            print(f"tests/long_tests.txt names {test}, which does not exist", file=sys.stderr)
        return 1 if gone else 0
    if options.report is None:
        parser.error("give a JUnit report, or --check")
    seconds = durations(options.report)
    chosen = sorted(test for test, took in seconds.items() if took >= options.seconds)
    LIST.write_text("".join(f"{test}\n" for test in chosen), encoding="utf-8")
    rest = sum(took for test, took in seconds.items() if took < options.seconds)
    print(f"{len(chosen)} of {len(seconds)} tests are long; the others took {rest:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
