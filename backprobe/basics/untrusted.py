"""Reads files and compressed data that may be hostile or damaged, up to a maximum size.

Note [Reading what a stranger has made]: a run may come from an untrusted person or a failing disk. Reading it yields
    its contents or one line that says that it is damaged; it neither waits for ever nor takes memory without bound. So
    only regular files are opened (a pipe in the place of a file waits for a writer, a device has no end); compressed
    data is unpacked up to a bound, whatever its size (``store/codec.py``); only plain tables are queried, with bounds
    on rows, values and work (``store/opening.py``); values have the types that records declare (``store/codec.py``) and
    refer to existing records, without cycles (``store/columns.py``). Remaining errors are reported by the command that
    reads the run (``commands/reading.py``).
"""

from __future__ import annotations

import gzip
import os
import stat
import zlib
from pathlib import Path

#: The most bytes of one value after decompression. The graph of a backward of a million nodes takes about 45 MB as
#: JSON, and some twenty times as much as objects.
MAX_VALUE_BYTES = 64 << 20
#: The most bytes of a small file beside a run: a process's description or crash report.
MAX_FILE_BYTES = 64 << 20


def is_regular(path: str | os.PathLike[str]) -> bool:
    """Return whether `path` is a regular file, or a link to one."""
    try:
        return stat.S_ISREG(os.stat(path).st_mode)
    except (OSError, ValueError):
        return False


def read_bytes(path: str | os.PathLike[str], max_bytes: int = MAX_FILE_BYTES) -> bytes:
    """Return the content of a regular file.

    :raises OSError: it is none, or cannot be read, or has more than `max_bytes`.
    """
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    with open(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(f"{Path(path).name} is not a regular file")
        data = file.read(max_bytes + 1)
    if len(data) > max_bytes:
        raise OSError(f"{Path(path).name} has more than {max_bytes >> 20} MiB")
    return data


def read_text(path: str | os.PathLike[str], max_bytes: int = MAX_FILE_BYTES, errors: str = "strict") -> str:
    """Read a regular file as text.

    :raises OSError: see ``read_bytes``.
    :raises ValueError: it is no UTF-8.
    """
    return read_bytes(path, max_bytes).decode("utf-8", errors)


def decompress(data: bytes, max_bytes: int = MAX_VALUE_BYTES) -> bytes:
    """Decompress zlib data.

    :raises ValueError: the result is larger than `max_bytes`.
    :raises zlib.error: the data is damaged.
    """
    unpacker = zlib.decompressobj()
    found = unpacker.decompress(data, max_bytes + 1)
    if len(found) > max_bytes:
        raise ValueError(f"a value has more than {max_bytes >> 20} MiB")
    if not unpacker.eof:
        raise zlib.error("incomplete or truncated stream")
    return found


def read_gzip(path: str | os.PathLike[str], max_bytes: int = MAX_VALUE_BYTES) -> bytes:
    """Read and decompress a regular gzip file.

    :raises OSError: it is no such file, or it is damaged.
    :raises ValueError: the result is larger than `max_bytes`.
    :raises EOFError, zlib.error: it is damaged.
    """
    if not is_regular(path):
        raise OSError(f"{Path(path).name} is not a regular file")
    with gzip.open(path, "rb") as file:
        found = file.read(max_bytes + 1)
    if len(found) > max_bytes:
        raise ValueError(f"{Path(path).name} has more than {max_bytes >> 20} MiB, unpacked")
    return found
