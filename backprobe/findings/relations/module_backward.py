"""Findings in the forward of a module whose own backward nothing calls."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ...records import Finding, ModuleBackward

if TYPE_CHECKING:
    from ...traces import Trace


def without_own_backward(trace: Trace, found: Iterable[Finding]) -> list[Finding]:
    """Return the findings whose main site is outside the forward of modules that define their own `backward`.

    `backward-never-called` explains the others.
    """
    known = trace.facts.of(ModuleBackward)
    return [one for one in found if not any(_is_in_forward(one, seen) for seen in known)]


def _is_in_forward(found: Finding, seen: ModuleBackward) -> bool:
    """Return whether the main site of a finding is within the forward of the module class that `seen` is about."""
    site = found.sites[0].site if found.sites else None
    return site is not None and site.file == seen.defined.file and seen.forward[0] <= site.line <= seen.forward[1]
