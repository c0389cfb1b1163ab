"""The line of a write in place that broke a backward: in steps whose ops were noted, and in steps in which they were
not."""

from __future__ import annotations

import linecache
import math
from pathlib import Path
from typing import Any

import pytest
from case_sampling import sample_cases
from inplace_cases import STEPS, script

from backprobe.observe.schedule import budget as budgets
from backprobe.observe.session import Session, Settings
from backprobe.observe.sinks.memory import Collector

#: A script's writes that no optimizer made: in a step whose ops were not noted they are never certain.
BY_HAND = frozenset(
    (
        *("loop by hand", "moving average", "weights copied", "clipped gradient", "weights clamped", "result added to"),
        *("result added to after the step of another", "element set", "activation in place", "initialised again"),
        *("step, then a write by hand", "a write by hand, then a step", "buffer written", "foreach"),
    )
)


def found_in(tmp_path: Path, name: str, when: int, budget: float | None) -> tuple[Any, int]:
    """The finding about the script `name` that goes wrong in step `when`, and the line that writes."""
    text = script(name, when)
    path = tmp_path / "train.py"
    path.write_text(text)
    linecache.checkcache()
    collector = Collector()
    session = Session(collector, Settings(budget=budget))
    session.start()
    try:
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            exec(compile(text, str(path), "exec"), {"__name__": "__main__"})
    finally:
        session.stop()
    assert session.error is None, session.error
    (found,) = [one for one in collector.trace(session).findings if one.kind == "inplace"]
    return found, next(n for n, line in enumerate(text.splitlines(), 1) if "# mutated" in line)


def mutated_line(found: Any) -> int:
    return next(site.site.line for site in found.sites if site.role == "mutated")


def sure(found: Any) -> str:
    """How sure a finding may be whose write was noted: a line that carries a result on is read from the source."""
    return "likely" if found.sites[0].role == "carried" else "certain"


@pytest.mark.parametrize("name", sample_cases(STEPS))
def test_a_write_that_was_noted_is_certain(tmp_path: Path, name: str) -> None:
    found, line = found_in(tmp_path, name, 0, None)
    assert (mutated_line(found), found.confidence) == (line, sure(found))
    assert "candidates" not in found.evidence


@pytest.mark.parametrize("name", STEPS)
def test_a_write_in_a_step_that_was_not_recorded(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The hook on optimizers saw the line of each step; what else wrote is inferred."""
    monkeypatch.setattr(budgets, "FREE_SECONDS", 0.0)
    monkeypatch.setattr(budgets, "MAX_STEPS_BETWEEN_RECORDED", 10**9)
    monkeypatch.setattr(budgets, "UNRECORDED_STEP_FRACTION", math.inf)
    found, line = found_in(tmp_path, name, 40, 1e-9)
    assert mutated_line(found) == line
    assert found.confidence == ("likely" if name in BY_HAND else sure(found))
    if name in BY_HAND:
        assert any(f"train.py:{line} " in place for place in found.evidence["candidates"])
        assert "operations were not recorded" in found.evidence["inferred"]


@pytest.mark.parametrize("name", sample_cases(STEPS, 2))
def test_a_write_in_a_step_that_passed(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A fast-path step records no ops, so the line is never certain."""
    monkeypatch.setattr(budgets, "FREE_SECONDS", 0.0)
    monkeypatch.setattr(budgets, "MAX_STEPS_BETWEEN_RECORDED", 10**9)
    monkeypatch.setattr(budgets.Budget, "next_fast_path_steps", lambda *_, **__: 1000)  # however long a step takes here
    found, line = found_in(tmp_path, name, 200, 1e-9)
    assert (mutated_line(found), found.confidence) == (line, "likely")
    assert any(f"train.py:{line} " in place for place in found.evidence["candidates"])
