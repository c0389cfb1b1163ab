"""Locations of run folders, and the findings file."""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from ..basics.errors import BackprobeError
from ..basics.files import replace_text
from ..basics.privacy import masked, masked_source, private
from ..findings.json_size import as_json
from ..store import PRIVATE
from ..store.job import is_run, written
from ..traces import Trace

#: The folder in the working folder that holds runs.
RUNS = "backprobe-runs"


def new_run(script: str) -> Path:
    """Create a new folder in ``backprobe-runs``, named after the script and the time, and return its path.

    :raises OSError: it cannot be created.
    """
    stem = Path(script).stem if script.endswith(".py") else script.rpartition(".")[2]
    base = Path(RUNS) / f"{stem}-{time.strftime('%Y%m%d-%H%M%S')}"
    base.parent.mkdir(exist_ok=True)
    path, n = base, 1
    while True:
        try:
            path.mkdir(mode=PRIVATE)  # may raise if another process creates it at the same time
            return path
        except FileExistsError:
            n += 1
            path = base.with_name(f"{base.name}-{n}")


def write_findings(path: Path, trace: Trace, mode: str = "") -> None:
    """Write the findings as JSON to `path`, replacing a link at that place (Note [Symbolic links]).

    :param mode: for the file in the folder of a run: how much source the run stores (``SOURCE_MODES``); private data is
        then left out (Note [Secrets in a run]).

    :raises BackprobeError: it cannot be written.
    """
    try:
        found = trace.as_dict()
        for site in (site for one in found["findings"] for site in one["sites"]):
            site["text"] = masked_source(site["text"]) if mode != "none" else ""
        text = as_json(found)
        replace_text(path, (private(text) if mode else masked(text)) + "\n")
    except OSError as error:
        raise BackprobeError(f"cannot write the findings to {path}: {error.strerror}") from error


def run_folders(parent: Path) -> list[Path]:
    """Return the folders of the runs in the folder `parent`, the latest last; empty if there is no such folder."""

    if not parent.is_dir():
        return []
    return sorted((p for p in parent.iterdir() if is_run(p)), key=lambda p: written(p))


def rank_argument(parser: argparse.ArgumentParser) -> None:
    """Add ``--rank``, which selects the rank whose steps are shown in a multi-process run."""
    parser.add_argument(
        "--rank",
        type=int,
        metavar="N",
        help="show the steps of rank N (default: of the rank that the first finding is about)",
    )


def find_run(name: str | None) -> Path:
    """Return the folder of a run: that path, or one of that name in ``backprobe-runs``; without a name the latest run.

    A folder that does not exist is returned as it is.

    :raises BackprobeError: there are no runs.
    """
    if name is None:
        folders = run_folders(Path(RUNS))
        if not folders:
            raise BackprobeError(f"no runs in {RUNS}/ to show: name the folder of one")
        return folders[-1]
    return Path(name) if Path(name).exists() else Path(RUNS) / name if (Path(RUNS) / name).exists() else Path(name)
