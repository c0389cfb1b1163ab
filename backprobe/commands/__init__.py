"""The command line: one class per subcommand, one error class caught once."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from .. import __version__
from ..errors import BackprobeError
from ..process_clock import IMPORTED, Moment
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
from .show import Runs, Show
from .top import Top

_COMMANDS = (Run, Compare, Show, Report, View, Top, Runs, Debug, Explain, Schema, Demo, Bench, Doctor, Completion, Mcp)


#: Commands in whose output a script writes: what becomes of that is the script's affair.
_OF_SCRIPTS = ("run", "debug", "bench", "compare", "demo")


class Parser(argparse.ArgumentParser):
    def error(self, message: str) -> None:  # type: ignore[override]
        raise BackprobeError(f"{message} (see {self.prog} --help)")


def parser() -> Parser:
    """Of all commands."""
    parser = Parser(prog="backprobe", description="See what happens inside loss.backward(), and what went wrong.")
    parser.add_argument("--version", action="version", version=f"backprobe {__version__}")
    subparsers = parser.add_subparsers(metavar="COMMAND", required=True, parser_class=Parser)
    for command in _COMMANDS:
        doc = command.__doc__ or ""
        sub = subparsers.add_parser(command.name, help=doc.splitlines()[0], description=doc)
        instance = command()
        instance.arguments(sub)
        sub.set_defaults(command=instance)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one subcommand; return the exit code. A ``BackprobeError`` becomes one line and exit code 2.

    :param argv: ``None`` if this process was started for it: then its imports are a part of what it takes.
    """
    began = Moment.now() if argv is not None else IMPORTED
    try:
        options = parser().parse_args(argv)
        options.began = began
        try:
            code = int(options.command.run(options))
            if options.command.name not in _OF_SCRIPTS:
                sys.stdout.flush()
            return code
        except BrokenPipeError:
            if options.command.name in _OF_SCRIPTS:
                raise
            # Who read the output has gone, as `head` does: Python is not to say so when it flushes at the end.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 1
    except BackprobeError as error:
        print(f"backprobe: {error}", file=sys.stderr)
        return 2
