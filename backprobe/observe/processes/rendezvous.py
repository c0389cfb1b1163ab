"""Agreement on one run folder among ranks that a launcher starts with ``backprobe run`` each.

Note [Joining]: the first rank makes the folder and writes the identifier of the job to ``job.json``; the others find
the folder, one at a time. A rank's part has the rank's name, so a folder that already has this part belongs to an
earlier job, even if everything else is equal.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import platform
import stat
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from ...basics.errors import BackprobeError
from ...basics.files import replace_text
from ...store import PRIVATE
from ...store.job import goes_on
from ...store.parts import JOB, PARTS, claim, locked, read_job, read_parts
from .identity import Identity

#: Seconds within which ranks on several machines start.
MAX_START_SPREAD_S = 120.0


def join_run_folder(me: Identity, out: Path | None, runs: Path, new: Callable[[], Path]) -> tuple[Path, Path]:
    """Return the run folder that all ranks share, and this rank's folder in it.

    The first rank that gets the lock makes the folder; the others find it there.

    :param out: the requested folder; without it, a folder in `runs`, which `new` makes.
    :raises BackprobeError: the folder holds something else.
    :raises OSError: the folder cannot be created.
    """
    if out is not None:
        out.mkdir(mode=PRIVATE, parents=True, exist_ok=True)
        with locked(out):
            return _there(me, out)
    runs.mkdir(parents=True, exist_ok=True)
    with locked(runs):
        for folder in _latest(runs):
            if _belongs_to_job(folder, me):
                return folder, claim(folder, me.slot)
        folder = new()
        return _made(me, folder)


def _there(me: Identity, out: Path) -> tuple[Path, Path]:
    """Return an existing run folder and this rank's new folder in it; an empty folder becomes the run's.

    :raises BackprobeError: the folder holds something else.
    """
    if not (out / JOB).is_file() and all(one.name in (".lock", ".locked") for one in out.iterdir()):
        return _made(me, out)
    if not _belongs_to_job(out, me):
        raise BackprobeError(f"{out} is not empty: a run needs a folder of its own")
    return out, claim(out, me.slot)


def _made(me: Identity, folder: Path) -> tuple[Path, Path]:
    """Begin a run in `folder`: write the job's identifier, and return the folder and this rank's folder in it."""
    about = {"job": me.job, "started": time.time(), "machine": platform.node(), "world": me.world}
    replace_text(folder / JOB, json.dumps(about))
    return folder, claim(folder, me.slot)


def _latest(runs: Path) -> Sequence[Path]:
    """Return the folders of runs with a job in `runs`, the latest first, at most 20."""
    found = [path.parent for path in runs.glob(f"*/{JOB}")]
    return sorted(found, key=lambda path: (path / JOB).stat().st_mtime, reverse=True)[:20]


def _belongs_to_job(folder: Path, me: Identity) -> bool:
    """Return whether a run folder is that of this rank's job, and not of an earlier job with equal settings."""
    job = read_job(folder)
    if job is None or job.get("job") != me.job or job.get("world") != me.world or (folder / PARTS / me.slot).exists():
        return False
    # An earlier job may have had the same address and name.
    fresh = time.time() - float(job.get("started", 0)) < MAX_START_SPREAD_S
    return me.here or fresh or me.restart > 0 or any(goes_on(seen) for seen in read_parts(folder).values())


def temporary(me: Identity) -> Path:
    """Return a temporary folder for the ranks of a run that is not saved: the same for all ranks on this machine.

    All ranks have to find the folder, so its name is predictable. It is used only if it is a directory of this user
    that other users cannot access.

    :raises OSError: the folder cannot be created, or belongs to another user.
    """
    name = hashlib.sha256(f"{me.job}/{me.world}".encode()).hexdigest()[:16]
    folder = Path(tempfile.gettempdir()) / f"backprobe-{os.getuid()}-{name}"
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    found = folder.lstat()  # lstat: a symbolic link could lead to a folder of this user
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise PermissionError(f"{folder} is not a folder of this user's alone")
    return folder
