"""What Dynamo keeps from one test to the next, and how it is forgotten."""

from __future__ import annotations

import pytest

dynamo = pytest.importorskip("torch._dynamo")


def forget() -> None:
    """What was compiled, and what Dynamo has counted."""
    dynamo.reset()
    dynamo.utils.counters.clear()
