"""``backprobe compare``: where two runs part."""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from ..comparing.align import Names
from ..comparing.compared import Judge
from ..errors import BackprobeError
from ..loading import load
from ..records import Judged, Tape
from .files import find_run


class Compare:
    """Say where two runs part: the first op that differs by more than rounding.

    A and B are folders of runs recorded with 'backprobe run --record compare', or names of those in backprobe-runs/.
    Exit code: 0 where they calculate the same, 1 where they differ.
    """

    name = "compare"

    def arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "runs",
            nargs="*",
            metavar="RUN",
            help="the folders of two runs, or of more; or -- SCRIPT ARGS --vs CHANGES: the script is run twice, "
            "the second time with --dtype D, --compiled [BACKEND], --device D, --seed N, --threads N, --env NAME=VALUE "
            "or --rev COMMIT",
        )
        parser.add_argument("-m", dest="module", action="store_true", help="SCRIPT is a module's name")
        parser.add_argument("--record-mb", type=int, default=512, metavar="MB", help="of the runs that are made (512)")
        parser.add_argument(
            "--map",
            action="append",
            default=[],
            metavar="OLD=NEW",
            help="a regular expression on names of modules and weights of A, and what it becomes, to be as in B; "
            "several are applied in order",
        )
        parser.add_argument("--json", action="store_true", help="print what was found as JSON instead")
        parser.add_argument(
            "--estimate", action="store_true", help="tell from fingerprints alone: calculate nothing again (no torch)"
        )

    def run(self, options: argparse.Namespace) -> int:
        from ..comparing.compared import as_dict, compare
        from ..comparing.files import read_tape, tape_folder
        from ..comparing.text import report

        if "--vs" in options.runs:
            from .versus import both

            folders = both(options.runs, options.module, ["--record-mb", str(options.record_mb)])
        elif len(options.runs) < 2:
            raise BackprobeError("name two runs to compare: backprobe compare A B")
        else:
            folders = [find_run(one) for one in options.runs]
        names = Names(_table(options.map))
        first = read_tape(folders[0])
        code, told = 0, []
        for folder in folders[1:]:
            second = read_tape(folder)
            judge = None if options.estimate else judge_of(tape_folder(folders[0]), tape_folder(folder))
            found = compare(first, second, judge, names)
            code = max(code, {"differs": 1, "unseen": 2}.get(found.verdict, 0))
            if options.json:
                told.append({"a": str(folders[0]), "b": str(folder), **as_dict(found)})
            else:
                sys.stdout.write(report(found, str(folders[0]), str(folder)))
        if options.json:
            print(json.dumps(told[0] if len(told) == 1 else told, indent=1, default=str))
        return code


def _table(given: list[str]) -> list[tuple[str, str]]:
    """:raises BackprobeError: one is not ``OLD=NEW`` with a regular expression."""
    found = []
    for one in given:
        old, sign, new = one.partition("=")
        try:
            re.compile(old)
        except re.error as error:
            raise BackprobeError(f"--map {one}: {old} is no regular expression: {error}") from None
        if not sign:
            raise BackprobeError(f"--map {one}: it is OLD=NEW, such as 'encoder\\.layer=h'")
        found.append((old, new))
    return found


def judge_of(one: Path, two: Path) -> Judge | None:
    """What calculates both again; ``None`` where torch is not installed."""
    try:
        both = load("engine.exact.both").Both
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        return None

    def judge(a: Tape, b: Tape, pairs: Sequence[tuple[int, int]], names: Names) -> Judged:
        found: Judged = both(a, b, pairs, (one, two), names).run()
        return found

    return judge
