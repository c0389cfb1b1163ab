"""Objects that get the id of a freed object, whatever the allocator does.

``id`` is replaced in the modules of backprobe: an object with the attribute ``reused_id`` has this id.
"""

from __future__ import annotations

import builtins
import sys
from typing import Any, TypeVar

import pytest

T = TypeVar("T")
#: No object has an odd address.
REUSED = 12_345


def _id(one: Any) -> int:
    number = getattr(one, "reused_id", None)
    return number if type(number) is int else builtins.id(one)


def with_id(one: T, number: int = REUSED) -> T:
    """Return `one`, whose id is `number` for backprobe."""
    one.reused_id = number  # type: ignore[attr-defined]
    return one


@pytest.fixture
def reuse(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make backprobe see the ids that ``with_id`` gives."""
    for name, module in list(sys.modules.items()):
        if name.startswith("backprobe."):
            monkeypatch.setattr(module, "id", _id, raising=False)
