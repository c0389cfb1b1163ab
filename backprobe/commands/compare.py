"""``backprobe compare``: the first op at which two runs diverge."""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from ..basics.errors import BackprobeError
from ..basics.lazy_import import load
from ..basics.terminal import say
from ..basics.text import size
from ..comparing.align import Names
from ..comparing.compared import Compared, Judge
from ..comparing.sides import Side
from ..records import Judged, Tape
from .files import find_run
from .reading import reading_run


class Compare:
    """Find the first op that differs between two runs by more than rounding.

    A and B are folders of runs recorded with 'backprobe run --record-ops', or names of folders in backprobe-runs/. The
    exit code is 0 if they compute the same, 1 if they differ. If you give more runs, each is compared with the first
    one and the groups that agree are listed. One run with '--step N --with-step M' compares two of its steps.
    """

    name = "compare"

    def arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the arguments of the command."""
        parser.add_argument(
            "runs",
            nargs="*",
            metavar="RUN",
            help="the folders of two or more runs; or -- SCRIPT ARGS --vs CHANGES, which runs the script twice, the "
            "second time with --dtype D, --compiled [BACKEND], --device D, --seed N, --threads N, --env NAME=VALUE "
            "or --rev COMMIT",
        )
        parser.add_argument("-m", dest="module", action="store_true", help="SCRIPT is a module's name")
        parser.add_argument(
            "--max-record-mb", type=int, default=512, metavar="MB", help="limit for the tensors of the new runs (512)"
        )
        parser.add_argument(
            "--map",
            action="append",
            default=[],
            metavar="OLD=NEW",
            help="rename modules and weights of A to the names in B: a regular expression and its replacement; several "
            "are applied in order",
        )
        parser.add_argument("--step", type=int, metavar="N", help="compare only step N")
        parser.add_argument(
            "--with-step",
            type=int,
            metavar="M",
            help="compare step N of A with step M of B, or of A if it is the only run",
        )
        parser.add_argument("--html", metavar="FILE", help="write a page of both runs to FILE, which opens offline")
        parser.add_argument("--json", action="store_true", help="print the result as JSON")
        parser.add_argument(
            "--estimate", action="store_true", help="use fingerprints alone and compute nothing again (needs no torch)"
        )

    def run(self, options: argparse.Namespace) -> int:
        """Record the runs if the script is to be run (``--vs``), compare them, and return the exit code."""
        table = Names(_table(options.map))
        if "--vs" in options.runs:
            from .versus import both

            folders = both(options.runs, options.module, ["--max-record-mb", str(options.max_record_mb)])
        else:
            folders = [find_run(one) for one in options.runs]
        with reading_run(*folders):
            return self._compared(folders, options, table)

    def _compared(self, folders: list[Path], options: argparse.Namespace, table: Names) -> int:
        """Compare the runs in `folders`, print how they differ, and return the exit code.

        :param table: names in the first run that are others in the second (``--map``).
        """
        from ..comparing.compared import as_dict
        from ..comparing.groups import describe_groups, groups
        from ..comparing.text import report

        sides, given = _sides(folders, options)
        runs = _Runs(sides, table, options.estimate, given)
        found = [runs.compared(0, k) for k in range(1, len(sides))]
        names = [side.name for side in sides]
        which = groups(len(sides), lambda i, j: runs.compared(i, j).verdict) if len(sides) > 2 else []
        if options.json:
            rows = [{"a": names[0], "b": name, **as_dict(one)} for name, one in zip(names[1:], found, strict=True)]
            agree = [{"runs": _named(one.runs, names), "bits": [_named(p, names) for p in one.bits]} for one in which]
            say(json.dumps({"groups": agree, "comparisons": rows} if which else rows[0], indent=1, default=str))
        else:
            for name, one in zip(names[1:], found, strict=True):
                say(report(one, names[0], name), end="")
            if which:
                say("\n".join(["", *describe_groups(which, names)]))
        if options.html:
            from ..report.comparison import write

            file = write(sides, found, which, Path(options.html))
            say(f"{file} ({size(file.stat().st_size)})", sys.stderr if options.json else sys.stdout)
        return max({"differs": 1, "unseen": 2}.get(one.verdict, 0) for one in found)


def _named(runs: Sequence[int], names: Sequence[str]) -> list[str]:
    """Return the names of runs, given by their indices."""
    return [names[run] for run in runs]


def _sides(folders: list[Path], options: argparse.Namespace) -> tuple[list[Side], bool]:
    """Return the runs to compare, and whether tensors from outside are expected to be equal.

    :raises BackprobeError: there is nothing to compare.
    """
    from ..comparing.files import read_tape
    from ..comparing.steps import only_step

    first, second = options.step, options.with_step
    if second is not None and (first is None or len(folders) > 2):
        raise BackprobeError("--step N --with-step M compares two steps of one run, or of two runs")
    if second is not None and options.estimate:
        raise BackprobeError("two steps are given different tensors: only calculating them again can compare them")
    if second is not None and len(folders) == 1:
        folders = folders * 2
    if len(folders) < 2:
        raise BackprobeError("name two runs to compare: backprobe compare A B")
    tapes = {folder: read_tape(folder) for folder in dict.fromkeys(folders)}
    sides = []
    for number, folder in enumerate(folders):
        step = second if number and second is not None else first
        name = str(folder) if step is None else f"{folder}, step {step}"
        tape = tapes[folder] if step is None else only_step(tapes[folder], step)
        sides.append(Side(name, folder, tape))
    return sides, second is None or second == first


class _Runs:
    """Compares runs in pairs, each pair once; the results are kept.

    :param estimate: do not recompute anything.
    :param given: whether tensors from outside are expected to be equal.
    """

    def __init__(self, sides: Sequence[Side], names: Names, estimate: bool, given: bool) -> None:
        self._sides, self._names, self._estimate, self._given = sides, names, estimate, given
        self._found: dict[tuple[int, int], Compared] = {}

    def compared(self, i: int, j: int) -> Compared:
        """Return the result of comparing run `i` with run `j`."""
        from ..comparing.compared import compare
        from ..comparing.files import tape_folder

        if (i, j) not in self._found:
            a, b = self._sides[i], self._sides[j]
            # The table maps the first run's names; other pairs need no mapping.
            names = self._names if i == 0 else Names()
            judge = None if self._estimate else judge_of(tape_folder(a.folder), tape_folder(b.folder))
            if not self._given:
                _check_inputs_stored([a, b])
            self._found[i, j] = compare(a.tape, b.tape, judge, names, self._given)
        return self._found[i, j]


def _check_inputs_stored(sides: Sequence[Side]) -> None:
    """Check that torch is installed, and that each run stored what cannot be computed again.

    That is the inputs of its steps and the results of random operations.

    :raises BackprobeError: torch or such a tensor is missing.
    """
    from ..comparing.files import tape_folder
    from ..comparing.steps import values_from_outside

    try:
        kept = load("float64.tensor_store").Kept([tape_folder(side.folder) for side in sides])
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise BackprobeError("two steps are compared by calculating them again, which needs torch") from None
    for side in sides:
        lost = [one for one in values_from_outside(side.tape) if one not in kept]
        if lost:
            raise BackprobeError(
                f"{side.name}: {len(lost)} tensors that it was given were not kept: record with more --max-record-mb"
            )


def _table(given: list[str]) -> list[tuple[str, str]]:
    """Parse ``--map`` options.

    :raises BackprobeError: one is not ``OLD=NEW`` with a regular expression.
    """
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
    """Return a function that recomputes both runs in float64; ``None`` if torch is not installed."""
    try:
        both, kept = load("float64.pairwise").Both, load("float64.tensor_store").Kept
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        return None

    def judge(a: Tape, b: Tape, pairs: Sequence[tuple[int, int]], names: Names) -> Judged:
        """Recompute two runs in float64 and return what that shows."""
        found: Judged = both(a, b, pairs, kept([one, two]), names).run()
        return found

    return judge
