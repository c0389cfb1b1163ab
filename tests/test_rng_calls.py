"""Source lines that draw random numbers that a checkpoint does not restore."""

from __future__ import annotations

from pathlib import Path

import pytest

from backprobe.records import Site
from backprobe.source.rng_calls import drawn_before

SCRIPT = """\
import random
import torch
import numpy as np
from random import random as draw

def decide(p):
    return random.random() < p

def forward(x):
    if {before}:
        return x
    return x * 2

def quiet(x):
    random.seed(0)
    return torch.rand(3) * x
"""


@pytest.mark.parametrize(
    ("before", "line"),
    [
        ("random.random() < 0.5", 10),
        ("draw() < 0.5", 10),
        ("np.random.rand() < 0.5", 10),
        ("torch.rand(1, generator=own) < 0.5", 10),
        ("self.rng.random() < 0.5", 10),
        ("decide(0.5)", 7),
        ("torch.rand(1) < 0.5", None),
        ("torch.rand(1, generator=None) < 0.5", None),
    ],
)
def test_the_line_that_draws(before: str, line: int | None, tmp_path: Path) -> None:
    file = tmp_path / "model.py"
    file.write_text(SCRIPT.format(before=before))
    found = drawn_before(Site(str(file), 12, "forward", "return x * 2"))
    assert (found.line if found is not None else None) == line
    # What comes after it has no part in it, nor has a function that it does not call.
    early = drawn_before(Site(str(file), 9, "forward", ""))
    assert early is None
    assert drawn_before(Site(str(file), 16, "quiet", "")) is None
