"""Bytes that the process holds, as its system and torch's allocator of CUDA memory count them."""

from __future__ import annotations

import os

import torch

_PAGE = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096


def resident() -> int | None:
    """Bytes of this process in memory; ``None`` where the system does not say so for nothing (it does on Linux)."""
    try:
        file = os.open("/proc/self/statm", os.O_RDONLY)
    except OSError:
        return None
    try:
        return int(os.read(file, 128).split()[1]) * _PAGE
    finally:
        os.close(file)


def allocated() -> int | None:
    """Bytes of tensors on all CUDA devices of this process; ``None`` where it uses none."""
    if not torch.cuda.is_initialized():
        return None
    return sum(int(torch.cuda.memory_allocated(i)) for i in range(torch.cuda.device_count()))
