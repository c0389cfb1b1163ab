"""Formats numbers, sizes and tables for people. Never imports torch."""

from __future__ import annotations

import html
import re
from collections.abc import Sequence, Set

_PACKAGES = re.compile(r"[/\\](?:site|dist)-packages[/\\]")
#: Note [Control characters]: names, titles, source lines and error texts come from scripts, and from runs that a
#:     stranger may have recorded. A terminal obeys some characters in them: escape sequences write anywhere, set the
#:     clipboard or make false links; bidirectional overrides show source code in another order than it has; a line
#:     separator or a carriage return forges lines. Text that leaves backprobe goes through ``without_controls`` at the
#:     place that writes it. It shows as Python escapes: C0 and C1 controls, DEL, line and paragraph separators,
#:     bidirectional controls, tags (invisible, but a model reads them), lone surrogates (no encoding has them). A tab
#:     stays.
_CONTROLS = re.compile(
    "[\x00-\x08\x0a-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\U000e0000-\U000e007f]"
)
_CONTROLS_BUT_NEWLINE = re.compile(_CONTROLS.pattern.replace("\x0a", "\x0b"))


def number(value: float | None) -> str:
    """Format with three significant digits; ``None`` as a dash."""
    return "-" if value is None else f"{value:.3g}"


def counted(n: int, what: str) -> str:
    """Format a count with its noun: ``1 node``, ``1,234 nodes``."""
    return f"{n:,} {what if n == 1 else what + 's'}"


def without_controls(text: str, lines: bool = False) -> str:
    """Return `text` with the characters that a terminal obeys replaced by escapes: Note [Control characters].

    :param lines: `text` has several lines; newlines stay.
    """
    return (_CONTROLS_BUT_NEWLINE if lines else _CONTROLS).sub(_escape, text)


def _escape(found: re.Match[str]) -> str:
    """Return the escape that replaces a control character."""
    sign = found[0]
    return {"\n": "\\n", "\r": "\\r"}.get(sign) or sign.encode("unicode_escape", "surrogatepass").decode()


def plural(many: Sequence[object], one: str, several: str) -> str:
    """Return `one` if `many` has a single element, otherwise `several`."""
    return one if len(many) == 1 else several


def few(names: Sequence[str], most: int = 3) -> str:
    """List the first few of `names`, and the number of others."""
    shown = ", ".join(names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"


def op_in_text(op: str) -> str:
    """Return how a sentence calls an operation: ``data`` and ``tensor`` alone would be taken for the thing."""
    return {"data": ".data", "tensor": "torch.tensor(...)"}.get(op, op)


def listed(names: Sequence[str]) -> str:
    """Join texts: ``a``, ``a and b``, ``a, b and c``."""
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def seconds(count: float) -> str:
    """Format a duration: ``4 ms``, ``0.3 s``, ``3.2 s``, ``98 s``."""
    if count < 0.0995:
        return f"{1e3 * count:.0f} ms"
    return f"{count:.1f} s" if count < 9.95 else f"{count:,.0f} s"


def raised(error: BaseException) -> str:
    """Format an error: ``ValueError: message``, or its class alone if it has no message."""
    try:
        text = str(error)
    except Exception:
        text = "<exception str() failed>"  # as Python shows it
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def size(count: float) -> str:
    """Format a number of bytes with three digits: ``512 B``, ``1.5 MiB``."""
    units = ("B", "KiB", "MiB", "GiB", "TiB")
    k = 0
    while count >= 1024 and k < len(units) - 1:
        count, k = count / 1024, k + 1
    return f"{count:.0f} {units[k]}" if count >= 100 else f"{number(count)} {units[k]}"


def mib(count: float) -> str:
    """Format bytes in MiB without the unit, for a column. Small values get enough digits to be visible."""
    value = count / 2**20
    return f"{value:.2f}" if value >= 0.1 or not count else f"{value:.4f}" if value >= 0.0001 else "<0.0001"


def shape(sizes: Sequence[int], by: str = "x") -> str:
    """Format a shape: ``2x16x64``, or ``scalar``; a size below 0 is unknown."""
    return by.join("?" if n < 0 else str(n) for n in sizes) or "scalar"


def packaged(path: str) -> str:
    """Return the path of a file of an installed package, from the name of the package on."""
    return _PACKAGES.split(path)[-1]


def text_table(head: Sequence[str], body: Sequence[Sequence[str]], right: Set[int] = frozenset()) -> str:
    """Format a table whose columns are as wide as needed; without rows, return an empty text.

    Names are never cut, since users type them.

    :param right: the right-aligned columns, such as numbers.
    """
    if not body:
        return ""
    head, body = [without_controls(cell) for cell in head], [[without_controls(cell) for cell in row] for row in body]
    widths = [max(len(row[i]) for row in (head, *body)) for i in range(len(head))]
    return "\n".join(
        "  ".join(
            cell.rjust(w) if i in right else cell.ljust(w) for i, (cell, w) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in (head, *body)
    )


def html_table(head: Sequence[str], body: Sequence[Sequence[str]], right: Set[int] = frozenset()) -> str:
    """Format the same table as HTML for notebooks. Everything is escaped."""

    def line(tag: str, row: Sequence[str]) -> str:
        """Return one row of the table."""
        return "".join(
            f'<{tag} style="text-align:{"right" if i in right else "left"}">{html.escape(cell)}</{tag}>'
            for i, cell in enumerate(row)
        )

    rows = "".join(f"<tr>{line('td', row)}</tr>" for row in body)
    return f"<table><thead><tr>{line('th', head)}</tr></thead><tbody>{rows}</tbody></table>"


def plain(text: str) -> str:
    """Return `text` with unprintable characters, which could control a terminal, replaced by question marks."""
    return "".join(c if c.isprintable() else "?" for c in text)
