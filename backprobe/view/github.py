"""Findings as GitHub workflow commands, which GitHub shows beside the lines of a change: one command for each line."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from ..records import Finding

_COMMAND = {"error": "error", "warning": "warning", "info": "notice"}


def workflow_commands(findings: Iterable[Finding], root: Path | None = None) -> list[str]:
    """Return a command for each finding, at its main line.

    Paths inside `root` are relative to it; by default `root` is the checkout (``GITHUB_WORKSPACE``) or the working
    folder.
    """
    root = root or Path(os.environ.get("GITHUB_WORKSPACE") or os.getcwd())
    return [_annotation(finding, root) for finding in findings]


def _annotation(finding: Finding, root: Path) -> str:
    """Return the workflow command for one finding, with its other lines in the text."""
    where = {"title": f"backprobe: {finding.kind}"}
    if finding.sites:
        site = finding.sites[0].site
        where = {"file": _inside(site.file, root), "line": str(site.line), **where}
    others = [f"{one.role}: {one.site.file}:{one.site.line} {one.site.text}".rstrip() for one in finding.sites[1:]]
    text = "\n".join(part for part in (finding.title, finding.advice, *others) if part)
    properties = ",".join(f"{name}={_escaped(value, True)}" for name, value in where.items())
    return f"::{_COMMAND[finding.severity]} {properties}::{_escaped(text)}"


def _inside(file: str, root: Path) -> str:
    """Return the path of a file relative to `root`, if it is inside."""
    path = Path(os.path.abspath(file))
    return path.relative_to(root).as_posix() if path.is_relative_to(root) else file


def _escaped(text: str, value: bool = False) -> str:
    """Escape text for the runner (docs.github.com, workflow commands); `value`: it is the value of a property."""
    for sign in "%\r\n" + (":," if value else ""):
        text = text.replace(sign, f"%{ord(sign):02X}")
    return text
