"""The device that tests marked ``gpu`` run on: an accelerator, or the CPU in its place (BACKPROBE_GPU=cpu)."""

from __future__ import annotations

import os

import pytest
import torch

#: "cpu" runs every test of an accelerator on the CPU, as far as it needs no accelerator's own features.
STAND_IN = os.environ.get("BACKPROBE_GPU") == "cpu"
DEVICE = "cpu" if STAND_IN else "cuda"

#: For whole test files.
needs_device = [
    pytest.mark.gpu,
    pytest.mark.skipif(not STAND_IN and not torch.cuda.is_available(), reason="needs an accelerator"),
]
#: For tests of what only an accelerator has: streams, graphs, pinned memory.
needs_cuda = pytest.mark.skipif(DEVICE != "cuda", reason="needs CUDA itself")
