"""The extension for IPython and Jupyter, ``%load_ext backprobe``. It gets the shell, and does not import IPython."""

from __future__ import annotations

import argparse
import re
import shlex
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..basics.errors import BackprobeError
from ..basics.terminal import say
from ..commands import Parser
from ..commands.files import write_findings
from ..commands.run import Run, settings_of
from ..graphs.packed_calls import PackedNodes
from ..records import KINDS, BackwardCall, Finding
from ..traces import tables
from ..view import cells

if TYPE_CHECKING:
    from ..observe.live import LiveTrace
    from ..trace_api import Trace

_COVER = re.compile(r"%%backprobe(\s.*)?$", re.DOTALL)
#: Options of ``backprobe run`` that a cell also accepts, except the magic's own.
_CELL_OPTIONS = (
    *("level", "budget", "every", "steps", "layer_stats", "check", "histograms", "log_nodes", "log_file"),
    *("out", "findings", "quiet"),
)
#: A replaced attribute of the shell: its name, the previous value (``None``: the class has it), and the new value.
_Replaced = tuple[str, Any, Callable[..., Any]]


class _Options(argparse.Namespace):
    """The options of a recorded cell: those of ``backprobe run``, and ``page``."""

    page: bool


def _options(text: str) -> _Options:
    """Parse the rest of the magic's line.

    :raises BackprobeError: an option is unknown, or one that only the command has.
    """
    parser = Parser(prog="%%backprobe", add_help=False)
    parser.add_argument("--page", action="store_true")
    Run().arguments(parser)
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise BackprobeError(f"%%backprobe: {error}") from None
    options = parser.parse_args([*words, "cell"], _Options())
    if options.args or options.script != "cell":
        raise BackprobeError(f"%%backprobe takes options only, not {options.script!r}")
    plain = vars(parser.parse_args(["cell"]))
    for name, value in vars(options).items():
        if name not in (*_CELL_OPTIONS, "page") and value != plain[name]:
            raise BackprobeError(f"--{name.replace('_', '-')} is an option of backprobe run, not of %%backprobe")
    settings_of(options)
    return options


class Outcome:
    """The result of a cell, as shown below it."""

    def __init__(self, trace: Trace, page: bool = False) -> None:
        self._trace, self._page = trace, page

    def __repr__(self) -> str:
        return cells.outcome(self._trace)

    def _repr_html_(self) -> str:
        return cells.outcome_html(self._trace) + (self._trace._repr_html_() if self._page else "")


class _Watched:
    """The recording of one cell. Errors are shown without backprobe's own frames.

    :param about: IPython's record of the execution.
    :param raised_on: the caller raises the cell's error again, and it is shown there.
    """

    def __init__(self, shell: Any, about: Any, options: _Options, raised_on: bool) -> None:
        from ..observe.live import LiveTrace

        self.about, self.options = about, options
        self.trace: LiveTrace = LiveTrace(None, "model", settings_of(options))
        self._shell, self._raised_on = shell, raised_on
        self._replaced: list[_Replaced] = []
        self.trace.__enter__()
        for name in ("showtraceback", "CustomTB"):
            self._replace(name)

    def _replace(self, name: str) -> None:
        """Replace a method of the shell that shows errors by one that removes backprobe's frames first."""
        from ..source.tracebacks import strip

        real = getattr(self._shell, name)

        def show(*args: object, **kwargs: object) -> object:
            """Show an error without backprobe's frames; nothing if the caller shows it."""
            if (error := sys.exc_info()[1]) is not None:
                strip(error)
            return None if self._raised_on else real(*args, **kwargs)

        self._replaced.append((name, vars(self._shell).get(name), show))
        setattr(self._shell, name, show)

    def end(self) -> Trace:
        """End the recording and restore the shell."""
        for name, before, mine in self._replaced:
            if vars(self._shell).get(name) is not mine:  # the cell put its own there
                continue
            if before is None:
                delattr(self._shell, name)
            else:
                setattr(self._shell, name, before)
        self.trace.__exit__(None, None, None)
        return self.trace


class Extension:
    """The extension of one IPython shell: the magic, hooks around cells, and HTML for records.

    Note [A watched cell is the cell]: ``%%backprobe`` is removed before IPython looks for magics, and the rest runs as
    an ordinary cell, with its own names, outputs, errors, ``await`` and line numbers. IPython's events mark its
    beginning and end.
    """

    def __init__(self, shell: Any) -> None:
        self.shell = shell
        self.last: Trace | None = None
        self._open: list[_Watched] = []
        #: IPython's descriptions of the running cells, innermost last; and whether the magic itself runs one.
        self._cells: list[Any] = []
        self._called = False
        self._html = shell.display_formatter.formatters["text/html"]
        self._shown: dict[type, Callable[[Any], str]] = {
            **{kind: tables.record for kind in KINDS.values() if not hasattr(kind, "_repr_html_")},
            Finding: cells.finding,
            BackwardCall: lambda call: tables.html(call.nodes),
            PackedNodes: tables.html,
        }

    def start(self) -> None:
        """Register the magic, the hooks around cells, and the HTML of records with the shell."""
        self.shell.input_transformers_cleanup.append(self.uncover)
        self.shell.events.register("pre_run_cell", self.begin)
        self.shell.events.register("post_run_cell", self.end)
        self.shell.register_magic_function(self.magic, "line_cell", "backprobe")
        for kind, show in self._shown.items():
            self._html.for_type(kind, show)

    def stop(self) -> None:
        """Undo ``start``, and end recordings that are open."""
        while self._open:
            self._open.pop().end()
        self.shell.input_transformers_cleanup.remove(self.uncover)
        self.shell.events.unregister("pre_run_cell", self.begin)
        self.shell.events.unregister("post_run_cell", self.end)
        for magics in self.shell.magics_manager.magics.values():
            magics.pop("backprobe", None)
        for kind in self._shown:
            self._html.pop(kind, None)

    def uncover(self, lines: list[str]) -> list[str]:
        """Return the lines of a cell without the magic, if its options are valid.

        IPython calls this often, also for cells that do not run: so nothing is started here.
        """
        if not lines or _covered(lines[0]) is None or (self._cells and not self._called):
            return lines  # inside of another magic's cell: this one is called as those are
        rest = lines[1:]
        return rest if rest and rest[0].startswith("%%") else [f"# {lines[0]}", *rest]

    def begin(self, about: Any) -> None:
        """Start a recording if the cell begins with the magic; called by IPython before a cell runs."""
        inside = bool(self._cells) and not self._called
        self._cells.append(about)
        options = None if inside else _covered(about.raw_cell.strip().partition("\n")[0])
        if options is not None:
            self._open.append(_Watched(self.shell, about, options, self._called))
        self._called = False

    def end(self, result: object) -> None:
        """End the recording of a cell, save it as the options ask for, and show its report; called by IPython
        afterwards.
        """
        about = getattr(result, "info", None)
        if not any(one is about for one in self._cells):
            return
        while self._cells.pop() is not about:
            pass
        if not self._open or self._open[-1].about is not about:
            return
        watched = self._open.pop()
        options, trace = watched.options, watched.end()
        self.last = trace
        try:
            if options.out:
                trace.save(options.out)
            if options.findings:
                write_findings(Path(options.findings), trace)
        except BackprobeError as error:
            say(f"backprobe: {error}", sys.stderr)
        if not options.quiet:
            from IPython.display import display

            display(Outcome(trace, options.page))

    def magic(self, line: str, cell: str | None = None) -> Trace | None:
        """Record a cell, and report below it what went wrong in its backward passes.

        ``%%backprobe [OPTIONS]`` as the first line of a cell; ``%backprobe`` gives the trace of the last cell that was
        watched: ``trace = %backprobe``. Shown, it is the report's page.

        Options are those of ``backprobe run``: ``--level``, ``--budget``, ``--every``, ``--steps``, ``--check``,
        ``--layer-stats``, ``--histograms``, ``--log-nodes``, ``--log-file FILE``, ``--out DIR`` (keep the run there),
        ``--findings FILE``, ``--quiet`` (show nothing), and ``--page`` (show the report's page too).
        """
        from IPython.core.error import UsageError

        try:
            if cell is None:
                if line.strip():
                    raise BackprobeError("%backprobe takes nothing; options are for %%backprobe, which watches a cell")
                if self.last is None:
                    raise BackprobeError("no cell was watched yet: begin one with %%backprobe")
                return self.last
            _options(line)
        except BackprobeError as error:
            raise UsageError(str(error)) from None
        self._called = True
        try:
            self.shell.run_cell(f"%%backprobe {line}\n{cell}").raise_error()
        finally:
            self._called = False
        return None


def _covered(line: str) -> _Options | None:
    """Return the options of a cell whose first line is `line`; ``None`` without the magic or with invalid options.

    The magic itself reports invalid options.
    """
    found = _COVER.match(line.rstrip())
    with suppress(BackprobeError):
        return None if found is None else _options(found[1] or "")
    return None


_extensions: dict[int, Extension] = {}


def load(shell: object) -> None:
    """Attach the extension to an IPython shell, once."""
    if id(shell) not in _extensions:
        _extensions[id(shell)] = extension = Extension(shell)
        extension.start()


def unload(shell: object) -> None:
    """Detach the extension from an IPython shell, if it is attached."""
    extension = _extensions.pop(id(shell), None)
    if extension is not None:
        extension.stop()
