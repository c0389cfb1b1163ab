"""Text about functions that ``torch.compile`` compiled, one line for each."""

from __future__ import annotations

from collections.abc import Sequence

from ..basics.text import counted, few
from ..records import CompiledRegion, Site

#: Maximum number of functions that get a line.
MAX_FUNCTIONS = 6


def lines(regions: Sequence[CompiledRegion]) -> list[str]:
    """Return a line for each function, longest compile time first."""
    shown = sorted(regions, key=lambda one: -one.seconds)[:MAX_FUNCTIONS]
    left = len(regions) - len(shown)
    return [*map(line, shown), *([f"Compiled: {counted(left, 'other function')}"] if left else [])]


def line(one: CompiledRegion) -> str:
    """Return one line about a compiled function: graphs, seconds, recompilations, and why it is not compiled if it is
    not.
    """
    text = f"Compiled: {name(one)}: "
    if one.graphs:
        text += f"{counted(one.graphs, 'graph')}, the last of {counted(one.ops, 'op')}"
        if one.backwards:
            text += f", {counted(one.backwards, 'backward')}"
        if one.cached:
            text += f", {one.cached} read from torch's cache"
    else:
        text += "no graph"
    text += f", in {one.seconds:.1f} s"
    if one.recompiled:
        last = one.recompiled[-1]
        text += f"; compiled again {counted(len(one.recompiled), 'time')}, the last as {last.guard} did not hold"
    if one.limit:
        text += "; torch compiles it no more"
    elif one.skipped:
        text += f"; it runs in Python: {_where(one)}{_short(one.skipped)}"
    elif one.breaks:
        text += f"; its graph breaks at {few([f'{_line(b.site)} ({_short(b.reason)})' for b in one.breaks])}"
    return text


def name(one: CompiledRegion) -> str:
    """Return the display name of a compiled function."""
    at = f" ({_line(one.site, True)})" if one.site is not None else ""
    return f"{one.function or 'a function'}{at}" if one.after is None else f"{one.function} after line {one.after}"


def _where(one: CompiledRegion) -> str:
    """Return the line of the last graph break, as the start of a text; empty if there is none."""
    return f"{_line(one.breaks[-1].site)}: " if one.breaks else ""


def _line(site: Site | None, file: bool = False) -> str:
    """Return a line as text, with the name of the file if `file`."""
    if site is None:
        return "a line of a library"
    return f"{site.file.replace(chr(92), '/').rpartition('/')[2]}:{site.line}" if file else f"line {site.line}"


def _short(text: str, most: int = 90) -> str:
    """Return a text cut to `most` characters."""
    return text if len(text) <= most else f"{text[: most - 3]}..."
