"""Writes text to a terminal, a log or a pipe. All of backprobe's output goes through this module.

Everything goes through ``say`` or a ``console``, which send no control character of the text:
Note [Control characters]. ``tests/test_terminal.py`` holds every other file to that.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, TextIO

from .text import without_controls

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, ConsoleRenderable, RenderHook
    from rich.segment import Segment


def say(text: str = "", file: TextIO | None = None, end: str = "\n") -> None:
    """Write lines of text and flush.

    :param file: standard output if it is not given. What its encoding does not have becomes a question mark.
    """
    out = sys.stdout if file is None else file
    if out is None:  # a process without standard output, as a service has it
        return
    encoding = getattr(out, "encoding", None) or "utf-8"
    out.write(without_controls(text, lines=True).encode(encoding, "replace").decode(encoding) + end)
    out.flush()


def hyperlink(text: str, uri: str) -> str:
    """Return `text` as a link that terminals with OSC 8 can open; others show the text alone."""
    return f"\x1b]8;;{uri}\x1b\\{text}\x1b]8;;\x1b\\"


def console(file: TextIO, width: int | None = None) -> Console:
    """Return a rich console that writes to `file`, without markup in texts and without control characters."""
    from rich.console import Console

    # In a notebook rich would show what it writes to any file, and colour it: a request for text gets plain text.
    plain = False if isinstance(file, io.StringIO) else None
    made = Console(
        file=file,
        width=width,
        highlight=False,
        markup=False,
        emoji=False,
        soft_wrap=False,
        force_jupyter=False,
        force_terminal=plain,
    )
    made.push_render_hook(_hook())
    return made


def _hook() -> RenderHook:
    """Return a hook that removes the control characters of texts from a console's output.

    Control characters that rich itself sends, to move the cursor, are marked and stay.
    """
    from rich.console import RenderHook
    from rich.control import Control

    class WithoutControls(RenderHook):
        """Wraps each text that a console is to print in ``_Clean``."""

        def process_renderables(self, renderables: list[ConsoleRenderable]) -> list[ConsoleRenderable]:
            """Replace control characters in everything that is printed; rich's own control sequences stay."""
            return [one if isinstance(one, Control) else _Clean(one) for one in renderables]

    return WithoutControls()


class _Clean:
    """A renderable whose text has its control characters replaced by escapes."""

    def __init__(self, inner: ConsoleRenderable) -> None:
        self._inner = inner

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterable[Segment]:
        from rich.segment import Segment

        for text, style, control in console.render(self._inner, options):
            yield Segment(text if control else without_controls(text, lines=True), style, control)
