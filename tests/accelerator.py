"""The device that tests marked ``gpu`` run on: an accelerator, or the CPU in its place (BACKPROBE_GPU=cpu)."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch

import backprobe

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

_PACKAGE = str(Path(backprobe.__file__).parent)
_FETCH = str(Path(_PACKAGE, "torch_internals", "async_scalars.py"))
#: Files of torch whose functions call what a caller asks for: the caller is the one above.
_THROUGH = tuple(str(Path(torch.__file__).parent / name) for name in ("_tensor.py", "functional.py", "_ops.py"))


class WaitedError(RuntimeError):
    """The product made a call that waits for the device."""


@dataclass
class Waits:
    """Reads that wait for the device, recorded while the CPU stands in for an accelerator.

    :ivar calls: calls from backprobe that wait for the device, with their callers. There should be none.
    :ivar fetches: reads in the one place that may wait, ``torch_internals.async_scalars``, with their callers.
    """

    calls: list[str] = field(default_factory=list)
    fetches: list[str] = field(default_factory=list)


def _chain(frame: Any) -> str:
    """The product's frames, the innermost first."""
    found: list[str] = []
    while frame is not None and len(found) < 5:
        if frame.f_code.co_filename.startswith(_PACKAGE):
            found.append(f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}:{frame.f_code.co_name}")
        frame = frame.f_back
    return " < ".join(found)


def _is_text(one: Any) -> bool:
    return isinstance(one, str)


@contextmanager
def stand_in(raises: bool = True) -> Iterator[Waits]:
    """The CPU stands in for an accelerator: tensors say that they are not on the CPU, and a call of the product's that
    would wait for a device raises ``WaitedError``, and is noted. What torch and the test read themselves may wait.

    The kernels that every such call ends in are replaced in torch's dispatcher, so ``bool(t)``, ``float(t)``,
    boolean indexing and ``torch.equal`` are caught wherever they are called from, and no mode hides them.

    :param raises: note the calls, and let them go on, if false.
    """
    waits = Waits()
    to_list, to, numpy = torch.Tensor.tolist, torch.Tensor.to, torch.Tensor.numpy

    def read(call: str) -> None:
        frame: Any = sys._getframe(2)
        while frame is not None and frame.f_code.co_filename in (*_THROUGH, __file__):
            frame = frame.f_back
        if frame is None or not frame.f_code.co_filename.startswith(_PACKAGE):
            return
        if frame.f_code.co_filename == _FETCH:
            waits.fetches.append(_chain(frame.f_back))
            return
        waits.calls.append(f"{call}: {_chain(frame)}")
        if raises:
            raise WaitedError(waits.calls[-1])

    def scalar(tensor: torch.Tensor) -> Any:
        read("item")
        return to_list(tensor.detach().reshape(()))

    def nonzero(tensor: torch.Tensor) -> torch.Tensor:
        read("nonzero")
        flat = [i for i, value in enumerate(to_list(tensor.reshape(-1))) if value]
        if not tensor.dim():
            return torch.empty(len(flat), 0, dtype=torch.int64)
        return torch.stack(torch.unravel_index(torch.tensor(flat, dtype=torch.int64), tensor.shape), 1)

    def equal(one: torch.Tensor, other: torch.Tensor) -> bool:
        read("equal")
        return one.shape == other.shape and bool(to_list(one) == to_list(other))

    def as_list(self: torch.Tensor) -> Any:
        read("tolist")
        return to_list(self)

    def as_array(self: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        read("numpy")
        return numpy(self, *args, **kwargs)

    def copied(self: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        # What says whether it blocks is no wait: it is read later. And a device that is no text is the stand-in's own.
        if "non_blocking" not in kwargs and "cpu" in (*filter(_is_text, args), kwargs.get("device")):
            read("to")
        return to(self, *args, **kwargs)

    def to_cpu(self: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        read("cpu")
        return to(self, "cpu", *args, **kwargs)

    kernels: dict[str, Callable[..., Any]] = {"_local_scalar_dense": scalar, "nonzero": nonzero, "equal": equal}
    library = torch.library.Library("aten", "IMPL")
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns of each kernel that is replaced
        for name, kernel in kernels.items():
            library.impl(name, kernel, "CPU")
        for name, method in {"tolist": as_list, "numpy": as_array, "to": copied, "cpu": to_cpu}.items():
            patch.setattr(torch.Tensor, name, method)
        patch.setattr(torch.Tensor, "is_cpu", property(lambda self: False), raising=False)
        try:
            yield waits
        finally:
            library._destroy()
