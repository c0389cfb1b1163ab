"""Detection of full disks, which some packages do not report."""

from __future__ import annotations

import errno
import shutil

#: Bytes: if fewer are free, the last write may be incomplete.
LITTLE = 1 << 16


def check(folder: str) -> None:
    """Check the free space on the disk of `folder`.

    :raises OSError: the disk is full.
    """
    if shutil.disk_usage(folder).free < LITTLE:
        raise OSError(errno.ENOSPC, "No space left on device; what was written last may be missing", folder)
