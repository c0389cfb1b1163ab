"""The script that a command runs, as given on the command line."""

from __future__ import annotations

import argparse
import importlib.util

from ..basics.errors import BackprobeError
from ..observe.program import Script
from .found import file_of


def script_arguments(parser: argparse.ArgumentParser, code: bool = True) -> None:
    """Add the arguments for a script, which come last: everything after the script belongs to the script (``split``).

    :param code: allow ``-c CODE`` too.
    """
    group = parser.add_mutually_exclusive_group()
    group.add_argument("-m", dest="module", action="store_true", help="SCRIPT is a module's name")
    if code:
        group.add_argument("-c", dest="code", action="store_true", help="SCRIPT is a program passed in as a string")
    parser.add_argument(
        "script", help="the script to run, or a launcher, such as torchrun; - reads it from standard input"
    )
    parser.add_argument("args", nargs=argparse.REMAINDER, help="the script's own arguments")


def split(parser: argparse.ArgumentParser, given: list[str]) -> tuple[list[str], list[str]]:
    """Split `given` into the options of a command, and the script with its arguments, which ``argparse`` must not
    parse.

    As in Python, ``-m`` and ``-c`` end the options, and the next argument is the script whatever it looks like.
    """
    known = parser._option_string_actions
    rest = iter(enumerate(given))
    for at, one in rest:
        if one == "--":
            return given[:at], given[at + 1 :]
        if one == "-" or not one.startswith("-"):
            return given[:at], given[at:]
        if one.startswith("--"):
            name, has_value, _ = one.partition("=")
            fits = [name] if name in known else [full for full in known if full.startswith(name)]
        else:
            name, has_value = one[:2], one[2:]
            fits = [name]
            if name in known and known[name].dest in ("module", "code"):
                return [*given[:at], name], ([has_value] if has_value else []) + given[at + 1 :]
        if len(fits) == 1 and fits[0] in known and known[fits[0]].nargs != 0 and not has_value:
            next(rest, None)
    return given, []


def script_of(options: argparse.Namespace) -> Script:
    """Return the script that the options name: a file, a module, code, or standard input.

    :raises BackprobeError: the file is no script of this Python, or torch is not installed. A missing file is left to
        Python's own error.
    """
    if importlib.util.find_spec("torch") is None:
        raise BackprobeError("torch is not installed: kept runs can be shown, and nothing can be watched")
    args = tuple(options.args)
    if options.module:
        return Script("module", options.script, args)
    if getattr(options, "code", False):
        return Script("code", options.script, args)
    if options.script == "-":
        return Script("stdin", "-", args)
    return Script("file", file_of(options.script), args)
