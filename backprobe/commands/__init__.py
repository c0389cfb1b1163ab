"""The command line: one class per subcommand, one error class caught once."""

from __future__ import annotations

import argparse
import ast
import inspect
import os
import re
import sys
from collections.abc import Sequence
from difflib import get_close_matches
from typing import Any

from .. import __version__
from ..basics.errors import BackprobeError
from ..basics.process_clock import IMPORTED, Moment
from ..basics.terminal import say
from ..basics.text import without_controls
from ..observe.program import CannotStart
from .bench import Bench
from .compare import Compare
from .completion import Completion
from .debug import Debug
from .demo import Demo
from .doctor import Doctor
from .explain import Explain, Schema
from .mcp_server import Mcp
from .report import Report, View
from .run import Run
from .script import split
from .show import Runs, Show
from .top import Top

_COMMANDS = (Run, Compare, Show, Report, View, Top, Runs, Debug, Explain, Schema, Demo, Bench, Doctor, Completion, Mcp)


#: Minimum similarity (``difflib``, 0 to 1) of an option that a user may have meant: all begin with two dashes.
MIN_LIKENESS = 0.7
#: Commands whose output includes that of a script: write errors are then the script's concern.
_OF_SCRIPTS = ("run", "debug", "bench", "compare", "demo")
#: Commands whose last arguments are a script and the script's arguments.
_WITH_SCRIPT = ("run", "debug", "bench")


class Parser(argparse.ArgumentParser):
    """An argument parser that reports wrong use as a ``BackprobeError`` and names the nearest command or option."""

    def error(self, message: str) -> None:  # type: ignore[override]
        """Raise a ``BackprobeError`` with the message, instead of printing the usage and exiting."""
        raise BackprobeError(f"{_with_nearest(message)} (see {self.prog} --help)")

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse arguments; report an unknown option at once, with the most similar one."""
        found, unknown = super().parse_known_args(args, namespace)
        if unknown and unknown[0].startswith("-"):
            names = [name for name in self._option_string_actions if name.startswith("--")]
            near = get_close_matches(unknown[0].partition("=")[0], names, 1, MIN_LIKENESS)
            self.error(f"there is no option {unknown[0]}" + (f": did you mean {near[0]}?" if near else ""))
        return found, unknown


def _with_nearest(message: str) -> str:
    """Return argparse's message on an invalid choice, with the nearest choice instead of all if there is one."""
    found = re.match(r"(.*invalid choice: )'(.*)' \(choose from (.*)\)", message)
    if found is None:
        return message
    choices = [choice.strip("'") for choice in found[3].split(", ")]
    near = get_close_matches(found[2], choices, 1)
    if "COMMAND" in found[1]:
        return f"there is no command {found[2]!r}" + (f": did you mean {near[0]}?" if near else "")
    return f"{found[1]}{found[2]!r}: did you mean {near[0]}?" if near else message


def parser() -> Parser:
    """Return the parser of all commands."""
    parser = Parser(prog="backprobe", description="See what happens inside loss.backward(), and what went wrong.")
    parser.add_argument("--version", action="version", version=f"backprobe {__version__}")
    subparsers = parser.add_subparsers(metavar="COMMAND", parser_class=Parser)
    for command in _COMMANDS:
        doc = _docstring(command)
        sub = subparsers.add_parser(command.name, help=doc.partition("\n")[0], description=doc)
        instance = command()
        instance.arguments(sub)
        sub.set_defaults(command=instance)
    return parser


def _docstring(command: type) -> str:
    """Return the help text of a command: the docstring of its class.

    ``python -OO`` strips docstrings from the code; then it is read from the source.
    """
    if command.__doc__ is not None:
        return command.__doc__
    try:
        tree = ast.parse(inspect.getsource(sys.modules[command.__module__]))
    except (OSError, SyntaxError):
        return ""
    classes = (node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == command.__name__)
    return next((ast.get_docstring(node) or "" for node in classes), "")


def _parsed(given: Sequence[str]) -> argparse.Namespace:
    """Parse backprobe's options; the script and everything after it is passed through unchanged."""
    whole = parser()
    at = next((at for at, one in enumerate(given) if not one.startswith("-")), len(given))
    if at < len(given) and given[at] in _WITH_SCRIPT:
        (commands,) = (action for action in whole._actions if isinstance(action, argparse._SubParsersAction))
        ours, script = split(commands.choices[given[at]], list(given[at + 1 :]))
        if script:
            options = whole.parse_args([*given[: at + 1], *ours, "SCRIPT"])
            options.script, options.args = script[0], script[1:]
            return options
    return whole.parse_args(given)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one subcommand; return the exit code. A ``BackprobeError`` becomes one line and exit code 2.

    :param argv: ``None`` if this process was started for the command: its imports then count as overhead.
    """
    began = Moment.now() if argv is not None else IMPORTED
    try:
        options = _parsed(sys.argv[1:] if argv is None else argv)
        options.began = began
        if not hasattr(options, "command"):
            parser().print_help()
            return 0
        try:
            code = int(options.command.run(options))
            if options.command.name not in _OF_SCRIPTS:
                sys.stdout.flush()
            return code
        except BrokenPipeError:
            if options.command.name in _OF_SCRIPTS:
                raise
            # The reader of the output, such as `head`, has gone: keep Python from reporting that when it flushes at
            # exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 1
    except CannotStart as error:
        say(error.text, sys.stderr)
        return error.code
    except BackprobeError as error:
        say(f"backprobe: {without_controls(str(error))}", sys.stderr)
        return 2
