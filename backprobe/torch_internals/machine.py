"""The torch that is installed, and what it runs on."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch


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
