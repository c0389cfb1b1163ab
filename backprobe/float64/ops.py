"""Calls one recorded op again, with its floats in float64, on the CPU."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import torch

from ..ops import info
from ..records import TapeOp


class Opaque(Exception):
    """An op that cannot be called again."""


def wide(dtype: torch.dtype) -> torch.dtype:
    """Return the dtype used for computation in place of `dtype`."""
    if dtype.is_floating_point:
        return torch.float64
    return torch.complex128 if dtype.is_complex else dtype


def widened(tensor: torch.Tensor) -> torch.Tensor:
    """Return a copy in float64; integers and booleans keep their dtype."""
    return tensor.to(wide(tensor.dtype), copy=True)


def dtype_of(name: str) -> torch.dtype:
    """Return the dtype of this name.

    :raises Opaque: there is none.
    """
    found = getattr(torch, name, None)
    if not isinstance(found, torch.dtype):
        raise Opaque(name)
    return found


def moves(name: str) -> bool:
    """Return whether an op computes new values, instead of returning or copying some."""
    try:
        returns = function(name)._schema.returns
    except Opaque:
        return False
    shows = any(one.alias_info is not None and not one.alias_info.is_write for one in returns)
    row = info(name)
    clips = row.is_exact and row.has_flat_parts
    return not (shows or row.moves_values or row.is_fill or row.casts or clips)


def called_with(
    op: TapeOp, tree: Any, tensors: list[torch.Tensor], gave: str | None
) -> tuple[Any, list[object], dict[str, object]]:
    """Return the function of `op` and the arguments for a call, from the recorded arguments `tree`.

    :param gave: the dtype of its first output in the run, for ops that get no tensor to tell it by.
    :raises Opaque: it cannot be called.
    """
    short = op.name.partition(".")[0]
    func = function(op.name)
    args, kwargs = _value(tree[0], tensors), {key: _value(one, tensors) for key, one in tree[1].items()}
    names = _declared(func)[0]
    if short == "native_dropout":
        raise Opaque(short)
    if short in ("_softmax", "_log_softmax"):
        args[2] = False
    if not tensors and "dtype" in names and gave is not None and kwargs.get("dtype") is None:
        kwargs["dtype"] = wide(dtype_of(gave))
    for one in ("pin_memory", "non_blocking"):
        kwargs.pop(one, None)
    if short == "view" and isinstance(args[1], torch.dtype):
        raise Opaque(op.name)
    return func, args, kwargs


#: It gives zeros that have no memory, which cannot be written to.
_ZEROS = "_efficientzerotensor"


def call(op: TapeOp, tree: object, tensors: list[torch.Tensor], gave: str | None) -> list[torch.Tensor]:
    """Call `op` with the arguments `tree`; return its results, those that it writes in place first.

    :raises Opaque: it cannot be called.
    """
    func, args, kwargs = called_with(op, tree, tensors, gave)
    (names, writes), short = _declared(func), op.name.partition(".")[0]
    try:
        out = func(*args, **kwargs)
    except Exception as error:
        raise Opaque(f"{op.name}: {type(error).__name__}") from None
    writes = (*writes, *info(short).hidden_writes)
    written: list[torch.Tensor] = []
    for at, value in enumerate(args):
        if at < len(names) and names[at] in writes:
            written += _tensors(value)
    for key, value in kwargs.items():
        if key in writes:
            written += _tensors(value)
    if short == _ZEROS:
        out = torch.zeros(out.shape, dtype=out.dtype)
    if info(short).is_uninitialised:
        for one in _tensors(out):
            one.zero_()
    if any(one.layout is not torch.strided for one in _tensors(out)):
        raise Opaque(f"{op.name}: {out.layout if isinstance(out, torch.Tensor) else 'a sparse result'}")
    return written + [one for one in _tensors(out) if not any(one is w for w in written)]


@lru_cache(1000)
def _declared(func: Any) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the names of an op's arguments, and of those that its schema says it writes to."""
    arguments = func._schema.arguments
    writes = (a.name for a in arguments if a.alias_info is not None and a.alias_info.is_write)
    return tuple(a.name for a in arguments), tuple(writes)


@lru_cache(1000)
def function(name: str) -> Any:
    """Return the torch op of this name, if it computes with tensors.

    The name may come from a stranger's run. TorchScript's own functions, ops without a tensor (``aten::manual_seed``)
    and ops that open files (``aten::save``, ``aten::from_file``) are not called.

    :raises Opaque: there is none.
    """
    space, _, rest = name.rpartition("::")
    base, _, overload = rest.partition(".")
    try:
        found = getattr(getattr(getattr(torch.ops, space or "aten"), base), overload or "default")
        schema = found._schema
        taken = {argument.name for argument in schema.arguments}
        types = {str(one.type) for one in (*schema.arguments, *schema.returns)}
    except (AttributeError, RuntimeError):  # RuntimeError: a name that no schema can have
        raise Opaque(name) from None
    if space == "prim" or "filename" in taken or not any("Tensor" in one for one in types):
        raise Opaque(name)
    return found


def _value(tree: object, tensors: list[torch.Tensor]) -> Any:
    """Return an argument from its recorded form: tensors from `tensors`, floats and dtypes in float64."""
    if isinstance(tree, list):
        return [_value(one, tensors) for one in tree]
    if not isinstance(tree, dict):
        return tree
    ((kind, what),) = tree.items()
    if kind == "t":
        return tensors[what]
    return _CONSTRUCTORS[kind](what)


def _other(what: str) -> object:
    """Return ``None`` for a generator, which is not recorded.

    :raises Opaque: it is any other object.
    """
    if what == "Generator":
        return None
    raise Opaque(what)


_CONSTRUCTORS: dict[str, Any] = {
    "t": None,
    "c": lambda what: complex(*what),
    "dtype": lambda what: wide(dtype_of(what)),
    "device": lambda what: torch.device("cpu"),
    "format": lambda what: getattr(torch, what),
    "layout": lambda what: getattr(torch, what),
    "other": _other,
}


def _tensors(value: object) -> list[torch.Tensor]:
    """Return the tensors in the result of an op, also in nested lists and tuples."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, (list, tuple)):
        return [one for part in value for one in _tensors(part)]
    return []
