"""The torch that is installed, and what it runs on."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

_SCHEDULED = "/proc/thread-self/schedstat"


def waited() -> float:
    """Seconds that this thread was ready to run, so far, and had no processor; 0 where the system does not say."""
    try:
        file = os.open(_SCHEDULED, os.O_RDONLY)
        try:
            return int(os.read(file, 128).split()[1]) / 1e9
        finally:
            os.close(file)
    except (OSError, ValueError, IndexError):
        return 0.0


@contextmanager
def uncollected() -> Iterator[None]:
    """Python's collector of garbage does not run inside: thousands of objects are made that stay for a while, and it
    would look at all of them, again and again, and the sooner at all that there is."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def machine() -> dict[str, Any]:
    """Version, threads, accelerators."""
    cuda = torch.cuda.is_available()
    return {
        "version": str(torch.__version__),
        "threads": torch.get_num_threads(),
        "cuda": torch.version.cuda if cuda else None,
        "devices": [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())] if cuda else [],
        "mps": bool(torch.backends.mps.is_available()),
        "distributed": bool(torch.distributed.is_available()),
    }
