"""``backprobe completion``: shell completion of commands, options, their values, kinds and files."""

from __future__ import annotations

import argparse

from ..basics.errors import BackprobeError
from ..basics.terminal import say

SHELLS = ("bash", "zsh", "fish")
#: Metavars of arguments that are files or folders.
_FILES = {"DIR", "FILE", "FOLDER", "RUN", "OUT", "A", "B", "SCRIPT", "PATH"}
_NEEDED = "completions are made by the package shtab: pip install 'backprobe[completion]'"


class Completion:
    """Print what a shell needs to complete backprobe's commands, options and kinds of findings: bash, zsh or fish.

        backprobe completion bash > ~/.local/share/bash-completion/completions/backprobe
        backprobe completion zsh > ~/.zfunc/_backprobe          # a folder of $fpath
        backprobe completion fish > ~/.config/fish/completions/backprobe.fish

    Needs the package shtab: pip install 'backprobe[completion]'.
    """

    name = "completion"

    def arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the arguments of the command."""
        parser.add_argument("shell", choices=SHELLS, help="the shell")

    def run(self, options: argparse.Namespace) -> int:
        """Print the completion script; return 0.

        :raises BackprobeError: the package shtab is not installed.
        """
        try:
            import shtab
        except ImportError:
            raise BackprobeError(_NEEDED) from None
        from . import parser

        whole = parser()
        for sub in _subparsers(whole):
            for action in sub._actions:
                _add_choices(action, shtab.FILE)
        say(shtab.complete(whole, shell=options.shell), end="")
        return 0


def _subparsers(parser: argparse.ArgumentParser) -> list[argparse.ArgumentParser]:
    """Return the parsers of all commands."""
    (commands,) = (action for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    return list(commands.choices.values())


def _add_choices(action: argparse.Action, file: object) -> None:
    """Add the possible values of an argument to its parser, if it has none, or mark it as a file.

    The parser is used only for completion, not for checks.

    :param file: shtab's mark for files.
    """
    if action.choices is not None:
        return
    if action.dest == "kind":
        from ..findings import own_rules

        action.choices = ["skill", *sorted(kind.name for kind in own_rules().kinds)]
    elif action.dest == "log_to":
        from ..tracking.writers import WRITERS

        action.choices = [*WRITERS, "auto"]
    elif action.dest == "example":
        from .demo import names

        action.choices = names()
    elif str(action.metavar or action.dest).upper() in _FILES:
        action.complete = file  # type: ignore[attr-defined]
