"""Policies for where saved tensors are kept between forward and backward:
``with backprobe.offload.on_cpu(): loss = model(x)``.

Policies are context managers around the forward; the backward may run outside. They compose with each other (an inner
policy passes its results to the one around it), with a user's pair of hooks around them, and with checkpointing. An
in-place write to a saved tensor raises as it does in plain torch, although torch's own check is off under saved-tensor
hooks.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator

import torch
from torch import nn

from ...basics.errors import BackprobeError
from ...basics.select import Selection
from .compress import Compressed
from .copies import OnCpu
from .disk import OnDisk
from .layers import Layer, Pair
from .mutation import AllowMutation
from .trial import Trial as Trial
from .trial import measure as measure


def on_cpu(
    model: nn.Module | None = None,
    select: Selection = None,
    *,
    min_bytes: int = 0,
    budget_bytes: int | None = None,
    pin: bool = True,
) -> Layer:
    """Keep tensors that a GPU's forward saves in CPU memory. Tensors that are on the CPU already stay as they are.

    :param model: the model that ``select`` refers to; its buffers stay where they are.
    :param select: modules by path, in the usual forms: only tensors saved while one of them runs.
    :param min_bytes: leave memory smaller than this where it is.
    :param budget_bytes: leave as many bytes where they are at one time, first come first served; move the rest.
    :param pin: copy to pinned memory, so that the program does not wait for the copy.
    :raises BackprobeError: a number is negative; ``select`` without ``model``, or it matches nothing.
    """
    return OnCpu(pin=pin, model=model, select=select, min_bytes=min_bytes, budget_bytes=budget_bytes)


def on_disk(
    model: nn.Module | None = None,
    select: Selection = None,
    *,
    folder: str | os.PathLike[str] | None = None,
    min_bytes: int = 1 << 16,
    budget_bytes: int | None = None,
) -> Layer:
    """Keep tensors that the forward saves in safetensors files, in a new folder under ``folder`` (default: the system's
    folder for temporary files).

    A file is removed when its node releases it, the folder when the last file is gone. Folders that a killed process
    left are removed by the next process that uses the same ``folder`` (if the system has ``flock``: not on Windows).

    Other parameters and errors as in ``on_cpu``.

    :raises BackprobeError: also if a file cannot be written or read.
    """
    return OnDisk(folder, model=model, select=select, min_bytes=min_bytes, budget_bytes=budget_bytes)


def compressed(
    model: nn.Module | None = None,
    select: Selection = None,
    *,
    dtype: torch.dtype | None = None,
    level: int = 0,
    min_bytes: int = 1 << 12,
    budget_bytes: int | None = None,
) -> Layer:
    """Keep tensors that the forward saves in a smaller form.

    Without ``dtype`` this is lossless: bools become bits, integers the narrowest type that holds them, floats with many
    zeros a mask and values. Tensors that do not shrink stay as they are.

    :param dtype: also keep floating-point values in this narrower type, such as ``torch.bfloat16``. The gradients
        change: ``offload.measure`` says by how much.
    :param level: 1 to 9: also compress the rest by zlib, on the CPU and slowly. 0: do not.

    Other parameters and errors as in ``on_cpu``.
    """
    return Compressed(dtype, level, model=model, select=select, min_bytes=min_bytes, budget_bytes=budget_bytes)


def hooks(pack: Callable[[torch.Tensor], object], unpack: Callable[[object], torch.Tensor]) -> Layer:
    """Return a pair of hooks like ``torch.autograd.graph.saved_tensors_hooks`` that composes: its packed tensors go to
    the policies around it, and versions are checked. Tensors in a packed tuple, list or dict are passed on; tensors in
    other objects stay.
    """
    return Pair(pack, unpack)


def allow_mutation() -> Layer:
    """Allow in-place writes to saved tensors inside this block: the values are cloned before they are overwritten.

    The backward may run inside or outside. A write after the block raises, as usual. Writes that torch does not see
    (through NumPy, from a custom kernel) are not detected in time. Every op goes through Python while the block runs.
    """
    return AllowMutation()


@contextlib.contextmanager
def forbid_hooks(message: str) -> Iterator[None]:
    """Make saved-tensor hooks raise ``RuntimeError(message)`` inside this block, and also on entering it if some are
    active.

    This is ``torch.autograd.graph.disable_saved_tensors_hooks`` under a name that fits the other policies.
    """
    with torch.autograd.graph.disable_saved_tensors_hooks(message):
        yield


def increment_version(*tensors: torch.Tensor) -> None:
    """Declare that the memory of these tensors was written without torch's knowledge: by NumPy, a kernel, another
    library.

    A backward that needs the old values then raises torch's error instead of giving a wrong gradient.

    :raises BackprobeError: something is not a tensor, or was made in inference mode and has no version.
    """
    for number, tensor in enumerate(tensors):
        if not isinstance(tensor, torch.Tensor):
            raise BackprobeError(f"increment_version takes tensors; argument {number} is a {type(tensor).__name__}")
        if tensor.is_inference():
            raise BackprobeError(
                f"argument {number} of increment_version was made in inference mode: it has no version, and cannot be "
                "saved for backward, so there is nothing to mark"
            )
    torch.autograd.graph.increment_version(tensors)
