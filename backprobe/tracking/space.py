"""Full disks, of which some packages say nothing."""

from __future__ import annotations

import errno
import shutil

#: Bytes: with less left, what was written last may be missing.
LITTLE = 1 << 16


def check(folder: str) -> None:
    """:raises OSError: the disk that `folder` is on is full."""
    if shutil.disk_usage(folder).free < LITTLE:
        raise OSError(errno.ENOSPC, "No space left on device; what was written last may be missing", folder)
