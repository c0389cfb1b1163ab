"""Configuration of all tests: none fails because the machine is slow or runs it in the background, and trace functions
are restored."""

from __future__ import annotations

import atexit
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from zlib import crc32

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("any speed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any speed")

# pytest explains failed assertions in these helpers as fully as those in tests.
pytest.register_assert_rewrite("divergence", "learning", "replaying")

#: Tests that take long: tools/long_tests.py.
LONG_TESTS = frozenset(Path(__file__).with_name("long_tests.txt").read_text(encoding="utf-8").splitlines())

# With a budget it depends on how fast the machine is which steps are recorded: the tests of it ask for one.
os.environ.setdefault("BACKPROBE_BUDGET", "none")

# A runner in the background ignores interrupts, and so would the scripts that tests start and interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_configure(config: pytest.Config) -> None:
    """End a worker of pytest-xdist without finalizing its interpreter.

    A worker was seen to hang there for ten minutes on a busy machine, in a futex and without a Python frame, and xdist
    waits for its workers for ever. How a script exits is tested in processes of its own.
    """
    if hasattr(config, "workerinput"):
        atexit.register(os._exit, 0)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--part", metavar="K/N", help="of the slow tests with parameters only the K-th of N parts")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the tests that `make test` leaves to `make test-all`; leave out other parts than the one asked for."""
    for item in items:
        if f"{item.path.name}::{item.name}" in LONG_TESTS:
            item.add_marker("long")
    if config.option.part:
        part, parts = map(int, config.option.part.split("/"))
        left_out = [item for item in items if is_sampled(item) and crc32(item.nodeid.encode()) % parts != part % parts]
        config.hook.pytest_deselected(items=left_out)
        gone = set(left_out)
        items[:] = [item for item in items if item not in gone]


def is_sampled(item: pytest.Item) -> bool:
    """Whether this is a slow test of one of many cases, of which a part is enough to see what a change breaks."""
    return item.get_closest_marker("slow") is not None and hasattr(item, "callspec")


@pytest.fixture(autouse=True)
def measured() -> Iterator[None]:
    """pdb takes away the trace function of whoever measures coverage."""
    before = sys.gettrace()
    yield
    if sys.gettrace() is not before:
        sys.settrace(before)


@pytest.fixture(autouse=True)
def steady_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which steps a test in this process records depends on their number, and not on the load of the machine."""
    if "torch" in sys.modules:  # otherwise nothing is recorded here
        from steady_budget import SteadyBudget

        from backprobe.observe.schedule import step_policy

        monkeypatch.setattr(step_policy, "Budget", SteadyBudget)


@pytest.fixture
def fresh_dynamo() -> Iterator[None]:
    """For tests that compile: nothing is left of those before, or of this one."""
    from compiling import reset_dynamo  # which imports torch

    reset_dynamo()
    yield
    reset_dynamo()


@pytest.fixture(autouse=True)
def nothing_compiled() -> Iterator[None]:
    """A test that compiles leaves no sign of it: what was not called may have been compiled, where anything was."""
    yield
    utils = sys.modules.get("torch._dynamo.utils")
    if utils is not None:
        utils.counters.clear()
