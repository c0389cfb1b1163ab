"""Records histograms and small images of selected weights, gradients and outputs.

Steps 0, 1, 2, 5, 10, 20, 50, ... are recorded, because a pass over a tensor costs as much as a cheap operation on it.
"""

from __future__ import annotations

import math

import torch
from torch import nn

from ...basics.select import selector
from ...records import TensorSeen, Unseen
from ...source.roots import ModuleCallRef
from ...torch_internals import private
from ...torch_internals.measure import FLOATS, dtype_name
from ..schedule.settings import Settings
from ..tracker import Tracker
from ..tracker_context import TrackerContext

#: Maximum number of bins on each side of zero.
MAX_BINS_PER_SIDE = 24
#: Maximum number of decades that the bins cover below the largest absolute value.
MAX_DECADES = 6
#: Maximum number of rows and columns of an image.
MAX_IMAGE_CELLS = 24
#: Maximum number of records per run.
MAX_RECORDS = 400


class Tensors(Tracker):
    """Tracker of outputs of modules, parameters and their gradients, selected by ``Settings.histograms``.

    This setting has globs for names as in ``named_modules()``.
    """

    @classmethod
    def wanted(cls, settings: Settings) -> bool:
        """Return whether histograms were requested."""
        return bool(settings.histograms)

    def __init__(self, context: TrackerContext) -> None:
        """Start without records; the names to record come from the settings."""
        self._chosen, self._names = selector(context.settings.histograms), context.names
        self._step = 0
        self._due = True
        self._done: set[tuple[str, str, int]] = set()
        self._found: list[TensorSeen] = []
        self._dropped = 0

    def step_begins(self, step: int, inspecting: bool) -> None:
        """Note the number of the step, and whether it is one of those that are recorded."""
        self._step, self._due = step, due(step)

    def module_returned(self, module: nn.Module, where: ModuleCallRef, output: object) -> None:
        """Record the output of the first call of a selected module in a step that is recorded."""
        if not self._due or where.call != 1:
            return
        name = self._names.modules.name_of(where)
        if name is None or not self._chosen(name, None):
            return
        if isinstance(output, (tuple, list)) and output:
            output = output[0]
        if isinstance(output, torch.Tensor):
            self._record(name or where.class_name, "output", name, output)

    def optimizer_begins(self, optimizer: torch.optim.Optimizer) -> None:
        """Record weights and gradients before an optimizer steps, when the gradients are complete."""
        if not self._due:
            return
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                if not isinstance(parameter, nn.Parameter):
                    continue
                name = self._names.of(parameter)
                owner = name.rpartition(".")[0]
                if not (self._chosen(name, None) or (owner and self._chosen(owner, None))):
                    continue
                self._record(name, "weight", owner, parameter)
                if parameter.grad is not None:
                    self._record(name, "gradient", owner, parameter.grad)

    def _record(self, name: str, kind: str, module: str, tensor: torch.Tensor) -> None:
        """Record the values of a tensor once a step, up to ``MAX_RECORDS``.

        :param kind: ``output``, or what else the tensor is; `module`: the module that it belongs to.
        """
        if (name, kind, self._step) in self._done:
            return
        if len(self._found) >= MAX_RECORDS:
            self._dropped += 1
            return
        self._done.add((name, kind, self._step))
        found = seen(name, kind, module, self._step, tensor)
        if found is not None:
            self._found.append(found)

    def records(self) -> tuple[TensorSeen, ...]:
        """Return the recorded histograms."""
        return tuple(self._found)

    def unseen(self) -> list[Unseen]:
        """Return how many tensors were not recorded because there were too many."""
        if not self._dropped:
            return []
        return [
            Unseen("tensors", self._dropped, f"a run holds {MAX_RECORDS}: choose fewer with --histograms", hides=False)
        ]


def due(step: int) -> bool:
    """Return whether a step is one of 0, 1, 2, 5, 10, 20, 50, 100, ..."""
    while step >= 10 and step % 10 == 0:
        step //= 10
    return step in (0, 1, 2, 5)


def seen(name: str, kind: str, module: str, step: int, tensor: torch.Tensor | None) -> TensorSeen | None:
    """Return a record of the values of `tensor`, or of the part that this process holds.

    :returns: ``None`` if it is not a dense tensor of real floats with values.
    """
    tensor = private.local(tensor)
    if tensor is None:
        return None
    if tensor.dtype not in FLOATS or tensor.is_complex() or tensor.layout is not torch.strided or tensor.is_meta:
        return None
    if not tensor.numel() or (tensor.is_cuda and torch.cuda.is_current_stream_capturing()):
        return None
    with private.disable_function_modes(), private.hide_ops(), torch.no_grad():
        try:
            wide = torch.float64 if tensor.dtype is torch.float64 else torch.float32
            values = tensor.detach().to(wide).to("cpu")
            return _tensor_record((name, kind, module, step), tensor, values)
        except (RuntimeError, NotImplementedError):  # a tensor without values of its own, as under vmap
            return None


def _tensor_record(what: tuple[str, str, str, int], tensor: torch.Tensor, values: torch.Tensor) -> TensorSeen:
    """Return the record of `values`: histogram, mean, deviation, extremes, counts of zeros, NaN and Inf, and an image.

    :param what: name, kind, module and step; `tensor`: the whole tensor, of which `values` may be a part.
    """
    flat = values.reshape(-1)
    finite = flat[torch.isfinite(flat)]
    nan = int(torch.isnan(flat).sum())
    top = float(finite.abs().max()) if finite.numel() else 0.0
    edges = bounds(top)
    counts = torch.zeros(len(edges) - 1)
    if finite.numel():
        places = torch.bucketize(finite.double(), torch.tensor(edges[1:-1], dtype=torch.float64), right=True)
        counts = torch.bincount(places, minlength=len(edges) - 1)
    wide = finite.double()
    return TensorSeen(
        *what,
        tuple(tensor.shape),
        dtype_name(tensor.dtype),
        tuple(edges),
        tuple(int(c) for c in counts.tolist()),
        float(wide.mean()) if finite.numel() else math.nan,
        float(wide.std(correction=0)) if finite.numel() else math.nan,
        float(finite.min()) if finite.numel() else math.nan,
        float(finite.max()) if finite.numel() else math.nan,
        int((flat == 0).sum()),
        nan,
        flat.numel() - finite.numel() - nan,
        picture(values),
    )


def bounds(top: float) -> list[float]:
    """Return the edges of the histogram's bins for absolute values up to `top`.

    Bins are logarithmic on both sides of zero, with one bin around zero.
    """
    top = top or 1.0
    side = [top * 10 ** (-MAX_DECADES * (1 - k / MAX_BINS_PER_SIDE)) for k in range(MAX_BINS_PER_SIDE)] + [top]
    return [-x for x in reversed(side)] + side


def picture(values: torch.Tensor) -> tuple[tuple[float, ...], ...]:
    """Return means over the cells of `values` as a matrix: all dimensions except the last are rows."""
    matrix = values.reshape(-1, values.shape[-1]) if values.dim() > 1 else values.reshape(1, -1)
    rows, columns = min(matrix.shape[0], MAX_IMAGE_CELLS), min(matrix.shape[1], MAX_IMAGE_CELLS)
    means = nn.functional.adaptive_avg_pool2d(matrix[None], (rows, columns))[0]
    return tuple(tuple(float(f"{v:.4g}") for v in row) for row in means.tolist())
