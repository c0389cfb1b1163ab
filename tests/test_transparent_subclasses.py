"""Tensor subclasses with their own dispatch train as alone: no op of ours runs on one with dispatch off."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("subclassed.py")


def results(kinds: str, forms: str, watches: str) -> dict[tuple[str, str, str], tuple[object, int]]:
    """Gradients of each kind in each form under each watch, and how many calls of compiled regions were not kept."""
    command = [sys.executable, str(SCRIPT), kinds, forms, watches]
    done = subprocess.run(command, capture_output=True, text=True, cwd=SCRIPT.parent)
    assert done.returncode == 0, done.stderr[-3000:]
    rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("[")]
    assert len(rows) == len(kinds.split(",")) * len(forms.split(",")) * len(watches.split(","))
    return {(kind, form, watch): (found, count) for kind, form, watch, found, count in rows}


def differing(found: dict[tuple[str, str, str], tuple[object, int]]) -> list[tuple[str, str, str]]:
    return [key for key, (gradient, _) in found.items() if gradient != found[key[0], key[1], "plain"][0]]


@pytest.mark.parametrize("kinds", ["dtensor,nested", "two,own"])
def test_it_trains_as_alone(kinds: str) -> None:
    watches = "plain,trace,explain,asked,compared,stepped,captured,saved"
    assert differing(results(kinds, "eager,checkpointed", watches)) == []


def test_it_enters_a_compiled_function() -> None:
    found = results("dtensor,nested", "compiled", "plain,trace")
    assert differing(found) == []
    assert found["dtensor", "compiled", "trace"][1] > 0 and found["nested", "compiled", "trace"][1] > 0


@pytest.mark.slow
@pytest.mark.parametrize("kinds", ["dtensor,nested", "two,own"])
def test_a_subclass_enters_an_inspected_compiled_function(kinds: str) -> None:
    assert differing(results(kinds, "compiled", "plain,explain,asked,compared,stepped,captured,saved")) == []


def test_a_region_is_not_run_again_that_makes_one_or_calls_other_ranks() -> None:
    found = results("dtensor", "made inside,collective", "plain,trace")
    assert differing(found) == []
    assert found["dtensor", "made inside", "trace"][1] > 0 and found["dtensor", "collective", "trace"][1] > 0
