"""A batch that was kept: one safetensors file beside the run, with what is no tensor as JSON in its header."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import BackprobeError
from ..files import inside

#: The entry of the header that is ours.
_OURS = "backprobe"


@dataclass(frozen=True)
class LeftOut:
    """Stands for what was not kept, and says why."""

    what: str

    def __repr__(self) -> str:
        return f"<not kept: {self.what}>"


@dataclass(frozen=True)
class BatchCall:
    """What an outermost module was called with.

    :ivar module: its name, as findings have it; empty for the model itself where there is one only.
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
    """What the modules were called with in a step: ``model(*batch.args, **batch.kwargs)``.

    :ivar calls: of the outermost modules, in order; a loss that is a module is one.
    :ivar targets: what functions such as ``F.cross_entropy`` were given beside predictions.
    :ivar notes: what was changed in place since, or left out.
    """

    step: int
    why: str
    calls: tuple[BatchCall, ...]
    targets: tuple[Any, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def _first(self) -> BatchCall:
        return next((call for call in self.calls if call.trained), self.calls[0])

    @property
    def args(self) -> tuple[Any, ...]:
        """Those of the first call of a module that has parameters."""
        return self._first.args

    @property
    def kwargs(self) -> Mapping[str, Any]:
        """The same by name."""
        return self._first.kwargs

    def __repr__(self) -> str:
        calls = ", ".join(call.module or call.kind for call in self.calls)
        return f"<Batch of step {self.step} ({self.why}): calls of {calls}; {len(self.targets)} targets>"


def file_of(step: int) -> str:
    """The name of the file of a step's batch."""
    return f"batch-{step:06d}.safetensors"


def is_batch(path: Path) -> bool:
    """Whether that is the name of such a file."""
    return path.match("batch-*.safetensors")


def packed(batch: Batch) -> tuple[dict[str, Any], dict[str, str]]:
    """The tensors of a batch by name, and the header that tells the rest."""
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


def _plain(value: Any, path: str, tensors: dict[str, Any], names: dict[int, str]) -> Any:
    """`value` as JSON has it. One tensor that comes twice is one tensor again when it is read."""
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


def _value(plain: Any, tensors: Mapping[str, Any]) -> Any:
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
    """The batch of a step, with its tensors on the CPU.

    :raises BackprobeError: its file is not there, or is damaged.
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
