"""Writes files atomically, and opens files inside the folder of a run.

Note [Symbolic links]: backprobe never writes through a symbolic link. A file takes the place of the link, as ``sed -i``
    and ``git checkout`` have it; what the link points to stays as it is. Streams (a terminal, a pipe, ``/dev/stdout``)
    are written to as they are. Of a run, a link that points out of the run's folder is not read.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from secrets import token_hex

from .errors import BackprobeError

#: Not on every system.
NO_LINK = getattr(os, "O_NOFOLLOW", 0)
_CLOSE = getattr(os, "O_CLOEXEC", 0)
#: Folders whose names denote open files of a process.
_OPEN_FILES = ("/dev/", "/proc/")


@contextlib.contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a new file beside `path`, which replaces `path` if the block ends without an error.

    Whoever reads `path` finds the old file or the new one, whole. The new file gets the permissions of the old one.

    :raises OSError: the file cannot be written, or cannot take the place of `path`.
    """
    target = Path(path)
    part = target.with_name(f".{target.name}-{os.getpid()}-{token_hex(4)}")
    file = os.open(part, os.O_CREAT | os.O_EXCL | os.O_WRONLY | NO_LINK | _CLOSE, 0o666)
    try:
        with contextlib.suppress(OSError):
            old = target.lstat()
            if stat.S_ISREG(old.st_mode):
                os.chmod(part, stat.S_IMODE(old.st_mode))
    finally:
        os.close(file)
    try:
        yield part
        os.replace(part, target)
    finally:
        with contextlib.suppress(OSError):  # it is gone where all went well
            part.unlink()


def replace_text(path: str | os.PathLike[str], text: str) -> None:
    """Write `text` to the file `path` atomically; write to a stream directly (Note [Symbolic links]).

    :raises OSError: it cannot be written.
    """
    data = text.encode("utf-8", "surrogatepass")
    if is_stream(path):
        with open(path, "wb") as stream:
            stream.write(data)
        return
    with replacing(path) as part, open(part, "wb") as file:
        file.write(data)


def is_stream(path: str | os.PathLike[str]) -> bool:
    """Return whether `path` is a pipe, a terminal or another device, or denotes an open file of a process."""
    if os.path.join(os.path.realpath(os.path.dirname(os.path.abspath(path))), "").startswith(_OPEN_FILES):
        return True
    with contextlib.suppress(OSError):
        mode = os.lstat(path).st_mode
        return not (stat.S_ISREG(mode) or stat.S_ISLNK(mode) or stat.S_ISDIR(mode))
    return False


def add_to(path: str | os.PathLike[str]) -> int:
    """Open the file `path` for appending, create it if needed, and return its descriptor. Links are not followed.

    :raises OSError: it cannot be opened, or is a symbolic link.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | _CLOSE
    return os.open(path, flags if is_stream(path) else flags | NO_LINK, 0o666)


def inside(folder: Path, *names: str) -> Path:
    """Return the path of `names` inside the run folder `folder`; it need not exist.

    :raises BackprobeError: the path leads out of `folder`, or stands for no file or folder (a pipe would never end).
    """
    path = folder
    for name in names:
        if name in ("", ".", "..") or any(sign in name for sign in ("/", "\\", "\0")) or Path(name).is_absolute():
            raise BackprobeError(f"{name!r} is no name of a file in {folder}")
        path /= name
        try:
            mode = path.lstat().st_mode
        except (OSError, ValueError):
            continue
        if stat.S_ISLNK(mode):
            if not Path(os.path.realpath(path)).is_relative_to(os.path.realpath(folder)):
                raise BackprobeError(f"{path} is a symbolic link out of {folder}: not read")
            with contextlib.suppress(OSError):
                mode = path.stat().st_mode
        if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode) or stat.S_ISLNK(mode)):
            raise BackprobeError(f"{path} is neither a file nor a folder")
    return path
