"""Configuration of all tests: none fails because the machine is slow or runs it in the background, and trace functions
are restored."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("any speed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any speed")

# pytest explains failed assertions in these helpers as fully as those in tests.
pytest.register_assert_rewrite("divergence", "learning", "replaying")

# Scripts that are run, not collected, whatever they are called.
collect_ignore_glob = ["reports/*"]

# With a budget it depends on how fast the machine is which steps are recorded: the tests of it ask for one.
os.environ.setdefault("BACKPROBE_BUDGET", "none")

# A runner in the background ignores interrupts, and so would the scripts that tests start and interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def measured() -> Iterator[None]:
    """pdb takes away the trace function of whoever measures coverage."""
    before = sys.gettrace()
    yield
    if sys.gettrace() is not before:
        sys.settrace(before)


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
