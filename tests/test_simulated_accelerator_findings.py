"""Findings where the CPU stands in for an accelerator are those on the CPU: kinds, confidence and places.

Titles differ: on an accelerator the number of bad elements is not known, nor what a node had saved."""

from __future__ import annotations

import textwrap
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from accelerator import stand_in
from device_failures import SCRIPTS
from scripts import run


def found(kind: str, folder: Path, away: bool) -> list[tuple[Any, ...]]:
    """Run the script of a kind under a session; return the facts of each finding."""
    torch.manual_seed(0)
    with stand_in(raises=False) if away else nullcontext():
        _, findings, _ = run(folder, "device = torch.device('cpu')\n" + textwrap.dedent(SCRIPTS[kind][1]))
    return [
        (one.kind, one.confidence, one.module, one.node, one.step, [(p.role, p.site.line) for p in one.sites])
        for one in findings
    ]


@pytest.mark.parametrize("kind", SCRIPTS)
def test_the_findings_are_those_of_a_cpu(kind: str, tmp_path: Path) -> None:
    here = found(kind, tmp_path, away=False)
    assert here and here[0][0] == kind
    assert found(kind, tmp_path, away=True) == here
