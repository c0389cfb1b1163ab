"""Memory used by the process, as reported by the system and by torch's CUDA allocator."""

from __future__ import annotations

import os

import torch

_PAGE = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096


def resident() -> int | None:
    """Return the resident bytes of this process; ``None`` if the system does not report them cheaply (Linux does)."""
    try:
        file = os.open("/proc/self/statm", os.O_RDONLY)
    except OSError:
        return None
    try:
        return int(os.read(file, 128).split()[1]) * _PAGE
    finally:
        os.close(file)


def allocated() -> int | None:
    """Return the bytes of tensors on all CUDA devices of this process; ``None`` if it uses none."""
    if not torch.cuda.is_initialized():
        return None
    return sum(int(torch.cuda.memory_allocated(i)) for i in range(torch.cuda.device_count()))
