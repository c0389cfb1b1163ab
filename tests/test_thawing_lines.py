"""Lines that thaw parameters, found in the source."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from backprobe.source.assignments import thawing

HELPER = "def switch(module, on):\n    for p in module.parameters():\n        p.requires_grad_(on)\n\n\n"
METHOD = "class Tool:\n    def switch(self, part, *, frozen=False):\n        part.requires_grad_(not frozen)\n\n\n"
DEFAULT = "def switch(module, on=True):\n    for p in module.parameters():\n        p.requires_grad = on\n\n\n"


@pytest.mark.parametrize(
    ("source", "lines"),
    [
        (HELPER + "switch(body, False)\nswitch(body, True)  # here\n", ["switch(body, True)"]),
        (HELPER + "switch(body, False)\nswitch(body, on=True)  # here\n", ["switch(body, on=True)"]),
        (HELPER + "switch(body, False)\n", []),
        (HELPER + "switch(body, flag)\n", []),
        (METHOD + "tool.switch(body, frozen=True)\ntool.switch(body)  # here\n", ["tool.switch(body)"]),
        (METHOD + "tool.switch(body, frozen=False)  # here\n", ["tool.switch(body, frozen=False)"]),
        (DEFAULT + "switch(body, False)\nswitch(body)  # here\n", ["switch(body)"]),
        ("p.requires_grad_(False)\np.requires_grad_(True)  # here\n", ["p.requires_grad_(True)"]),
        ("p.requires_grad_(False)\np.requires_grad_()  # here\n", ["p.requires_grad_()"]),
    ],
)
def test_lines_that_thaw(tmp_path: Path, source: str, lines: list[str]) -> None:
    file = tmp_path / "train.py"
    file.write_text(source)
    frames: Any = SimpleNamespace(users_files=lambda: [str(file)])
    found = thawing(frames)
    assert [source.splitlines()[site.line - 1].partition("  #")[0].strip() for site in found] == lines
