"""Reset of the state that Dynamo keeps from one test to the next."""

from __future__ import annotations

import pytest

dynamo = pytest.importorskip("torch._dynamo")


def reset_dynamo() -> None:
    """Discard all compiled code and the counters of Dynamo."""
    dynamo.reset()
    dynamo.utils.counters.clear()
