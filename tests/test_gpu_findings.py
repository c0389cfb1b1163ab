"""Common failures on an accelerator: the same finding at the same line as on a CPU."""

from __future__ import annotations

from pathlib import Path

import pytest
from accelerator import DEVICE, needs_device
from device_failures import SCRIPTS
from scripts import line_of, run

pytestmark = needs_device


@pytest.mark.parametrize("kind", SCRIPTS)
def test_the_failure_is_named_at_its_line(kind: str, tmp_path: Path) -> None:
    role, script = SCRIPTS[kind]
    text, findings, _ = run(tmp_path, f"device = torch.device('{DEVICE}')\n" + _dedented(script))
    assert findings, "nothing was found"
    first = findings[0]
    assert first.kind == kind
    assert (role, line_of(text, "CAUSE")) in [(site.role, site.site.line) for site in first.sites]


def _dedented(script: str) -> str:
    import textwrap

    return textwrap.dedent(script)
