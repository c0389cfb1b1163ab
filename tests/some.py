"""Of many like cases some run each time, and all of them among the slow tests."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def some(cases: Iterable[Any], every: int = 3) -> list[Any]:
    """One in `every` of `cases` as it is; the others are slow."""
    return [case if n % every == 0 else pytest.param(case, marks=pytest.mark.slow) for n, case in enumerate(cases)]
