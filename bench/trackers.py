"""Benchmark of an experiment tracker: CPU time of the training thread to report statistics of 400 curves.

    python bench/trackers.py [TRACKER ...]

The second column is the CPU time if the training thread calls the tracker itself with the same numbers.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from array import array
from statistics import median

from backprobe.records import Measured
from backprobe.tracking.link import Link
from backprobe.tracking.numbers import Chosen
from backprobe.tracking.writers import WRITERS, is_installed, writer

LOOKS, CURVES = 50, 400


def main(trackers: list[str]) -> None:
    names = tuple(f"grad_norm|h.{i}.weight" for i in range(CURVES))
    looks = [Measured(step, names, array("d", (step + i for i in range(CURVES)))) for step in range(LOOKS)]
    print(f"{'':12}{'handed on, us':>16}{'called there, ms':>18}{'ratio':>8}")
    for tracker in trackers:
        with tempfile.TemporaryDirectory() as folder:
            os.chdir(folder)
            os.environ.update(TRACKIO_DIR=folder, WANDB_SILENT="true", MLFLOW_TRACKING_URI=f"sqlite:///{folder}/m.db")
            about = {"folder": folder, "name": "bench", "script": "bench", "run": "", "open": None}
            link = Link(tracker)
            link.open(about)
            ours = [clocked(link.look, look) for look in looks]
            link.last()
            link.close(600)
            assert not link.unseen, link.unseen
            theirs = writer(tracker)
            theirs.begin({**about, "name": "again"})
            chosen = Chosen(["*"])
            direct = []
            for look in looks:
                rows = [(look.step, {**chosen.of(look), **{f"more/{i}": 0.0 for i in range(500 - CURVES - 3)}})]
                direct.append(clocked(theirs.rows, rows))
            theirs.close()
            mine, other = median(ours), median(direct)
            print(f"{tracker:12}{1e6 * mine:16.0f}{1e3 * other:18.2f}{other / mine:8.0f}", flush=True)
            os.chdir("/")


def clocked(call, what) -> float:
    begin = time.thread_time()
    call(what)
    return time.thread_time() - begin


if __name__ == "__main__":
    main(sys.argv[1:] or [name for name in WRITERS if is_installed(name)])
