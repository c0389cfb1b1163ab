"""Saved batches: one safetensors file beside the run; values that are no tensors are JSON in its header."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..basics.errors import BackprobeError
from ..basics.files import inside

#: The header entry that backprobe writes.
_OURS = "backprobe"


@dataclass(frozen=True)
class LeftOut:
    """A placeholder for a value that was not saved, with the reason."""

    what: str

    def __repr__(self) -> str:
        return f"<not kept: {self.what}>"


@dataclass(frozen=True)
class BatchCall:
    """The arguments of an outermost module.

    :ivar module: its name, as in findings; empty for the model itself if there is only one.
    :ivar kind: the name of its class.
    :ivar trained: it has parameters.
    """

    module: str
    kind: str
    trained: bool
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]


@dataclass(frozen=True)
class Batch:
    """The arguments of the modules in a step: ``model(*batch.args, **batch.kwargs)``.

    :ivar calls: of the outermost modules, in order; includes a loss that is a module.
    :ivar targets: the other arguments of functions such as ``F.cross_entropy``, beside predictions.
    :ivar notes: in-place changes since then, and omissions.
    """

    step: int
    why: str
    calls: tuple[BatchCall, ...]
    targets: tuple[Any, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def _first(self) -> BatchCall:
        """The first call of a module that has parameters, or the first of all."""
        return next((call for call in self.calls if call.trained), self.calls[0])

    @property
    def args(self) -> tuple[Any, ...]:
        """Positional arguments of the first call of a module that has parameters."""
        return self._first.args

    @property
    def kwargs(self) -> Mapping[str, Any]:
        """Keyword arguments of that call."""
        return self._first.kwargs

    def __repr__(self) -> str:
        calls = ", ".join(call.module or call.kind for call in self.calls)
        return f"<Batch of step {self.step} ({self.why}): calls of {calls}; {len(self.targets)} targets>"


def file_of(step: int) -> str:
    """Return the file name of a step's batch."""
    return f"batch-{step:06d}.safetensors"


def is_batch(path: Path) -> bool:
    """Return whether the path has the name of a batch file."""
    return path.match("batch-*.safetensors")


def packed(batch: Batch) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the tensors of a batch by name, and the header with everything else."""
    tensors: dict[str, Any] = {}
    names: dict[int, str] = {}
    calls = [
        {
            "module": call.module,
            "kind": call.kind,
            "trained": call.trained,
            "args": _plain(call.args, f"{i}.args", tensors, names),
            "kwargs": _plain(dict(call.kwargs), f"{i}.kwargs", tensors, names),
        }
        for i, call in enumerate(batch.calls)
    ]
    targets = _plain(batch.targets, "targets", tensors, names)
    told = {"step": batch.step, "why": batch.why, "calls": calls, "targets": targets, "notes": batch.notes}
    return tensors, {_OURS: json.dumps(told)}


def _plain(value: object, path: str, tensors: dict[str, object], names: dict[int, str]) -> Any:
    """Return `value` as JSON; tensors go into `tensors`, under the path at which they are first met.

    A tensor that occurs twice is stored once, and is one tensor again when read.

    :param names: the paths of the tensors met so far, by id.
    """
    if isinstance(value, LeftOut):
        return {"left_out": value.what}
    if isinstance(value, (tuple, list)):
        inside = [_plain(one, f"{path}.{i}", tensors, names) for i, one in enumerate(value)]
        return {"tuple": inside} if isinstance(value, tuple) else inside
    if isinstance(value, dict):
        return {"dict": [[key, _plain(one, f"{path}.{key}", tensors, names)] for key, one in value.items()]}
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if id(value) not in names:
        names[id(value)] = path
        tensors[path] = value
    return {"tensor": names[id(value)]}


def _value(plain: object, tensors: Mapping[str, object]) -> Any:
    """Return the value that ``_plain`` encoded as `plain`, with its tensors."""
    if isinstance(plain, list):
        return [_value(one, tensors) for one in plain]
    if not isinstance(plain, dict):
        return plain
    ((kind, inside),) = plain.items()
    if kind == "tensor":
        return tensors[inside]
    if kind == "tuple":
        return tuple(_value(one, tensors) for one in inside)
    if kind == "dict":
        return {key: _value(one, tensors) for key, one in inside}
    return LeftOut(inside)


def read_batch(folder: Path, step: int) -> Batch:
    """Read the batch of a step, with its tensors on the CPU.

    :raises BackprobeError: its file does not exist, or is damaged.
    """
    from safetensors import SafetensorError, safe_open

    path = inside(folder, file_of(step))
    if not path.is_file():
        raise BackprobeError(f"{path} is not there")
    try:
        with safe_open(str(path), "pt") as file:
            told = json.loads(file.metadata()[_OURS])
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
        calls = tuple(
            BatchCall(
                call["module"],
                call["kind"],
                call["trained"],
                _value(call["args"], tensors),
                _value(call["kwargs"], tensors),
            )
            for call in told["calls"]
        )
        return Batch(told["step"], told["why"], calls, _value(told["targets"], tensors), tuple(told["notes"]))
    except (OSError, SafetensorError, ValueError, KeyError, TypeError) as error:
        raise BackprobeError(f"{path} is damaged: {error}") from None
