"""The user's lines that turned gradient mode off, and the modules that were called under them.

Note [Lines that evaluate]: a line may turn gradient mode off for an evaluation, or stop a part of the model from
learning by mistake. The modules that the script calls under the line, from outside any module, show which: if the
script also calls one of them with gradient mode on, the line evaluates it.
"""

from __future__ import annotations

import torch

from ...records import Site

#: Maximum number of lines that are kept for a module.
MAX_LINES_OF_MODULE = 8
#: Maximum number of lines whose modules are kept, and of modules of a line.
MAX_LINES, MAX_MODULES_OF_LINE = 64, 64


class GradModeCalls:
    """The calls of one module with gradient mode on and off, and the lines that had turned it off."""

    __slots__ = ("calls", "no_grad_calls", "off", "off_lines")

    def __init__(self) -> None:
        #: Calls with gradient mode on; calls with it off.
        self.calls = self.no_grad_calls = 0
        #: The line that had turned gradient mode off before the latest call without it.
        self.off: Site | None = None
        #: The lines that had turned it off before any such call, the latest last.
        self.off_lines: dict[Site, None] = {}


class GradOffLines:
    """The lines that turned gradient mode off: the latest one, and the modules that were called under each line."""

    def __init__(self) -> None:
        #: The user's line that turned gradient mode off last.
        self.last: Site | None = None
        #: By line: the modules that were called under it from outside any module, each with the number of its calls
        #: with gradient mode on before.
        self._called_under: dict[Site, dict[GradModeCalls, int]] = {}

    def note_call(self, module: GradModeCalls, from_outside: bool) -> None:
        """Record that a module is called with gradient mode off.

        :param from_outside: whether it is called from outside any module.
        """
        line = module.off = self.last
        if line is None or torch.is_inference_mode_enabled():  # inference mode is not turned on by a recorded line
            return
        if next(reversed(module.off_lines), None) != line:
            module.off_lines.pop(line, None)
            if len(module.off_lines) < MAX_LINES_OF_MODULE:
                module.off_lines[line] = None
        if from_outside and (line in self._called_under or len(self._called_under) < MAX_LINES):
            under = self._called_under.setdefault(line, {})
            if len(under) < MAX_MODULES_OF_LINE:
                under.setdefault(module, module.calls)

    def line_that_stops(self, module: GradModeCalls, has_learned: bool = False) -> Site | None:
        """Return the line that had turned gradient mode off before the latest call of a module without gradients.

        Lines that evaluate are left out: Note [Lines that evaluate].

        :param has_learned: the module has run with gradient mode on before. Then only calls with gradient mode on that
            came after the first one under a line count, and a line is returned in any case.
        """
        lines = (line for line in reversed(module.off_lines) if not self._evaluates(line, has_learned))
        return next(lines, module.off if has_learned else None)

    def _evaluates(self, line: Site, only_later: bool) -> bool:
        """Return whether a module that was called under `line` is called with gradient mode on elsewhere, or since."""
        under = self._called_under.get(line, {})
        return any(module.calls > (before if only_later else 0) for module, before in under.items())
