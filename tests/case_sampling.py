"""Sampling of parametrized cases: the fast tests run a part of them, the slow tests all."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def sample_cases(cases: Iterable[Any], every: int = 3) -> list[Any]:
    """Mark all cases but one in `every` as slow."""
    return [case if n % every == 0 else pytest.param(case, marks=pytest.mark.slow) for n, case in enumerate(cases)]
