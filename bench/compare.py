"""Seeded faults of one op, and benign pairs: does ``backprobe compare`` name the op, and nothing where none is wrong?

    python bench/compare.py                 all of them, in this process
    python bench/compare.py --only scale    those whose name contains this, with the output

Faults were written before the tool was run on them; docs/compare.md has the first scores.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
import time
from pathlib import Path

import compare_fresh  # noqa: F401 (it adds cases)
from compare_cases import BENIGN, FAULTS, Case

import backprobe
from backprobe.commands.compare import judge_of
from backprobe.comparing.compared import Compared, compare
from backprobe.comparing.files import read_tape, tape_folder


def compared(case: Case, folder: Path) -> Compared:
    """The case, run twice and compared."""
    folders = []
    for bad in (False, True):
        at = folder / ("b" if bad else "a")
        with backprobe.trace(record_ops=at, steps=(0, 2)):
            case.run(bad)
        folders.append(at)
    a, b = (read_tape(at) for at in folders)
    return compare(a, b, judge_of(*map(tape_folder, folders)))


def hit(case: Case, found: Compared) -> bool:
    """Whether the op that is wrong is the one that is named."""
    blame = found.blame
    if blame is None:
        return False
    if case.name == "layer_frozen":
        return blame.kind in ("missing", "cut") and blame.name == case.module
    if case.name == "weight_decay":
        return any("weight_decay" in line for line in found.before) and any(
            op is not None and op.phase == "optimizer" for op in (blame.a, blame.b)
        )
    mark = f"[{case.name.removesuffix('_bf16')}]"
    for op in (blame.a, blame.b):
        if op is None or op.place is None or mark not in op.place.text:
            continue
        name = op.name.partition(".")[0]
        if (not case.ops or name in case.ops or name.rstrip("_") in case.ops) and case.module in (None, op.module):
            return True
    return False


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="cases whose name has this in it, and what is said of them")
    options = parser.parse_args()
    wrong = 0
    for title, cases in (("faults", FAULTS), ("benign pairs", BENIGN)):
        good = count = 0
        for case in cases:
            if not re.search(options.only, case.name):
                continue
            begin = time.time()
            with tempfile.TemporaryDirectory() as folder:
                found = compared(case, Path(folder))
            right = hit(case, found) if cases is FAULTS else found.verdict != "differs"
            good, count = good + right, count + 1
            blame = found.blame
            ops = [op for op in ((blame.a, blame.b) if blame else ()) if op is not None]
            said = "; ".join(f"{op.name} in {op.module or '-'}:{op.place.line if op.place else '-'}" for op in ops)
            kind = blame.kind if blame else ""
            took = f"({time.time() - begin:.1f} s)"
            print(f"{'ok  ' if right else 'MISS'} {case.name:24} {found.verdict:9} {kind:10} {said} {took}", flush=True)
            if options.only:
                from backprobe.comparing.text import report

                sys.stdout.write(report(found, "a", "b"))
        if count:
            print(f"{title}: {good} of {count} right")
        wrong += count - good
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
