"""The script that a command runs, as it is named on the command line."""

from __future__ import annotations

import argparse
import importlib
from contextlib import suppress

from ..errors import BackprobeError
from ..loading import load
from ..process_clock import Moment
from .found import file_of


def script_arguments(parser: argparse.ArgumentParser) -> None:
    """The last ones: what follows the script is the script's."""
    parser.add_argument("-m", dest="module", action="store_true", help="SCRIPT is a module's name")
    parser.add_argument("script", help="the script to run, or a launcher, such as torchrun")
    parser.add_argument("args", nargs=argparse.REMAINDER, help="the script's own arguments")


def import_torch() -> float:
    """Import torch, as the script is about to; the seconds that took. Without torch nothing happens."""
    began = Moment.now()
    with suppress(ModuleNotFoundError):
        importlib.import_module("torch")
    return began.seconds_until(Moment.now())


def script_of(options: argparse.Namespace) -> tuple[str, list[str], bool]:
    """The script, its arguments, and whether it is a module's name, as ``launch`` takes them. ``torch_s`` of `options`
    becomes the seconds that the import of torch took.

    :raises BackprobeError: there is no such file, or no torch that can be watched.
    """
    script = options.script if options.module else file_of(options.script)
    options.torch_s = import_torch()
    try:
        load("observe.launch")
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise BackprobeError("torch is not installed: kept runs can be shown, and nothing can be watched") from None
    return script, options.args, options.module
