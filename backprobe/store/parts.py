"""A run of several processes: a folder in ``parts`` for each, with its own file of steps and its description.

Note [Parts]: each process writes in a folder of its own, so none waits for another. ``seen.json`` is replaced
atomically and holds the latest state of a process; its recording is a run like any other. If the process that
``backprobe run`` started is one of equals (each rank was started so), it is a part too, and ``job.json`` names the
others.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import json
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ..basics.errors import BackprobeError
from ..basics.files import add_to, inside, replace_text
from ..basics.untrusted import read_bytes, read_text
from ..records import RankSeen, Unseen
from ..traces.coverage import is_there
from . import CODE, PROCESS_DESCRIPTION
from .codec import Decoder, dumps, own_fields, to_plain

#: In a run's folder: its parts; and the common description of its processes, if none of them is the first.
PARTS, JOB = "parts", "job.json"
_UNWATCHED = "unwatched-"
#: No process holds the lock of a folder longer than this.
STALE_LOCK_S = 30.0
_FIELDS = (
    "RankSeen",
    "RankWait",
    "Collective",
    "Replicas",
    "Replica",
    "ReplicaState",
    "Site",
    "Finding",
    "FindingSite",
)


def claim(folder: Path, name: str) -> Path:
    """Create a folder called `name` in the parts of the run in `folder`.

    :raises FileExistsError: there is one.
    :raises OSError: it cannot be created: a temporary run may be over, and its folder gone.
    """
    parts = folder / PARTS
    parts.mkdir(exist_ok=True)
    (parts / name).mkdir()
    return parts / name


def write_seen(part: Path, seen: RankSeen, texts: bool = True) -> None:
    """Write the state of a process into its folder, replacing the previous one. `texts`: with source lines."""
    fields = own_fields()
    plain = {"fields": {name: fields[name] for name in _FIELDS}, "seen": to_plain(seen, texts=texts)}
    replace_text(part / PROCESS_DESCRIPTION, dumps(plain))


def read_seen(part: Path) -> RankSeen | None:
    """Read the last state of a process from the folder of its part; ``None`` if there is none, or it is unreadable.

    If it is not over, whether it is still alive is found out now.
    """
    try:
        plain = json.loads(read_text(inside(part, PROCESS_DESCRIPTION)))
        seen = Decoder(plain["fields"])(RankSeen, plain["seen"])
    except (BackprobeError, OSError, ValueError, TypeError, LookupError, AttributeError, RecursionError):
        return None
    if seen.over:
        code = _exit_code(part)
        return dataclasses.replace(seen, code=code) if seen.code is None and code is not None else seen
    return dataclasses.replace(seen, alive=is_there(seen.pid, seen.machine) is not False)


def _exit_code(part: Path) -> int | None:
    """Return the exit code that the starting process wrote for this one; ``None`` if there is none."""
    with contextlib.suppress(BackprobeError, OSError):
        written = read_bytes(inside(part, CODE))
        return written[-1] if written else None
    return None


def read_parts(folder: Path) -> dict[Path, RankSeen]:
    """Return the last state of each process of the run in `folder`, by the folders of their parts, ranks first."""
    found = {}
    for part in part_folders(folder):
        seen = read_seen(part)
        if seen is not None:
            found[part] = seen
    return dict(sorted(found.items(), key=lambda pair: in_order(pair[1])))


def part_folders(folder: Path) -> list[Path]:
    """Return the folders of the parts of the run in `folder`, without links that lead out of it."""
    found = []
    for part in (folder / PARTS).glob("*/"):
        with contextlib.suppress(BackprobeError):
            found.append(inside(folder, PARTS, part.name))
    return found


def tells(seen: RankSeen) -> bool:
    """Return whether a process is worth showing: it trains, has a rank, or something went wrong in it."""
    calm = seen.over and not (seen.error or seen.code or seen.signal or seen.gaps or seen.findings)
    return not calm or seen.rank is not None or bool(seen.steps or seen.backwards)


def in_order(seen: RankSeen) -> tuple[bool, int, int, int]:
    """Sort key of processes: ranks first and by number, then by restart and process id."""
    return seen.rank is None, seen.rank or 0, seen.restart, seen.pid


def unwatched(folder: Path) -> list[Unseen]:
    """Return the processes of the run in `folder` of which nothing is known."""
    parts = folder / PARTS
    count = sum(1 for _ in parts.glob(f"{_UNWATCHED}*"))
    known = part_folders(folder)
    count += sum(1 for part in parts.glob("*/") if part not in known)
    count += sum(1 for part in known if (part / PROCESS_DESCRIPTION).exists() and read_seen(part) is None)
    return [Unseen("processes", count, "that the script started could not be watched")] if count else []


def read_job(folder: Path) -> Mapping[str, Any] | None:
    """Read ``job.json``; ``None`` if there is none.

    :raises BackprobeError: it cannot be read.
    """
    try:
        found = json.loads(read_text(inside(folder, JOB)))
        return dict(found)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, RecursionError) as error:
        raise BackprobeError(f"{folder / JOB} cannot be read: {error}") from error


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold an exclusive lock on a folder.

    On a file system without locks, a folder is the lock; if its process was killed, it is taken over after
    ``STALE_LOCK_S`` seconds.

    :raises OSError: `folder` cannot be written to.
    """
    if os.name != "posix":
        yield
        return
    import fcntl

    with os.fdopen(add_to(folder / ".lock"), "a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
        except OSError as error:
            if error.errno == errno.EINTR:
                raise
            with _locked_by_folder(folder / ".locked"):
                yield
        else:
            yield


@contextlib.contextmanager
def _locked_by_folder(lock: Path) -> Iterator[None]:
    """Hold a lock by creating the folder `lock`; an old one is taken over after ``STALE_LOCK_S`` seconds."""
    begin = time.monotonic()
    while True:
        try:
            lock.mkdir()
            break
        except FileExistsError:
            if time.monotonic() - begin > STALE_LOCK_S:
                break
            time.sleep(0.02)
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            lock.rmdir()
