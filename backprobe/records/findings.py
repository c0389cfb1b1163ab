"""Findings: what went wrong, for people and programs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from ..basics.text import without_controls
from .places import Site, lasting
from .registry import record
from .roles import meaning_of


@record
@dataclass(frozen=True, slots=True)
class FindingSite:
    """A source line and its role in a finding."""

    role: str
    site: Site


@record
@dataclass(frozen=True)
class Finding:
    """A problem in plain words, with its evidence. See ``backprobe/findings/README.md`` for every kind."""

    kind: str
    severity: str
    title: str
    confidence: str
    module: str | None = None
    node: str | None = None
    tensor: str | None = None
    parameters: tuple[str, ...] = ()
    step: int | None = None
    rank: int | None = None
    sites: tuple[FindingSite, ...] = ()
    evidence: Mapping[str, Any] = field(default_factory=dict)
    advice: str = ""

    def __str__(self) -> str:
        """Return the finding in one line: kind, module, main site, title."""
        where = f" at {self.sites[0].site}" if self.sites else ""
        module = f" in {self.module}" if self.module else ""
        return without_controls(f"{self.kind}{module}{where}: {self.title}")

    def __repr__(self) -> str:
        return f"<{self.severity}, {self.confidence}: {self}>"

    def as_dict(self) -> dict[str, Any]:
        """Return the finding as a JSON object of the documented format."""
        out = {k: getattr(self, k) for k in ("kind", "severity", "title", "module", "node", "tensor")}
        out["parameters"] = list(self.parameters)
        out["step"], out["rank"] = self.step, self.rank
        out["sites"] = [
            {
                "role": s.role,
                "meaning": meaning_of(s.role, self.kind),
                **asdict(s.site),
                "file": lasting(s.site.file),
            }
            for s in self.sites
        ]
        out["evidence"], out["confidence"], out["advice"] = dict(self.evidence), self.confidence, self.advice
        return out
