"""``--check divergence``: the first op that diverges from float64, or from a second model of the same structure.

Faults and healthy scripts were written, with what is to be said of them, before they were run.
"""

from __future__ import annotations

from pathlib import Path

from scripts import line_of, run

from backprobe.records import Finding

FUNCTION = """
class F(torch.autograd.Function):
    @staticmethod
    def forward(ctx, {given}):
        {forward}
    @staticmethod
    def backward(ctx, g):
        {backward}
"""


def departures(tmp_path: Path, script: str) -> tuple[str, list[Finding]]:
    """The script's whole text, and where it departs."""
    text, found, _ = run(tmp_path, script, "divergence")
    return text, [one for one in found if one.kind == "first-divergence"]


def named_at_its_line(tmp_path: Path, script: str, module: str, word: str) -> None:
    """Assert that `script` has one finding: at the line with ``# HERE``, in `module`, with `word` in the title."""
    text, found = departures(tmp_path, script)
    assert len(found) == 1
    (finding,) = found
    assert finding.sites[0].site.line == line_of(text, "# HERE"), finding
    assert finding.module == module and word in finding.title
