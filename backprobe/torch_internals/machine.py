"""Properties of the installed torch and of the hardware."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def uncollected() -> Iterator[None]:
    """Disable Python's garbage collector inside.

    Code inside creates thousands of long-lived objects, which the collector would visit again and again.
    """
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def machine() -> dict[str, object]:
    """Return the version of torch, the number of threads, and the accelerators."""
    cuda = torch.cuda.is_available()
    return {
        "version": str(torch.__version__),
        "threads": torch.get_num_threads(),
        "cuda": torch.version.cuda if cuda else None,
        "devices": [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())] if cuda else [],
        "mps": bool(torch.backends.mps.is_available()),
        "distributed": bool(torch.distributed.is_available()),
    }
