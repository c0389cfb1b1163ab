"""Names of operators: Python's, the dispatcher's and those of autograd nodes, and the row that each stands for."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache

from .info import OpInfo
from .rows import ROWS

_AUTOGRAD = "torch::autograd::"
#: Nodes of torch's own end with a number; those of the user's functions do not.
_NODE = re.compile(r"(\w+?)Backward\d+(_copy)?")
#: Where Python finds operators: not a part of their names.
_NAMESPACES = frozenset(
    (
        "torch",
        "Tensor",
        "TensorBase",
        "_C",
        "_VariableFunctions",
        "nn",
        "functional",
        "F",
        "ops",
        "aten",
        "prims",
        "_tensor",
    )
)
#: Namespaces that torch itself puts before the names of their operators: ``linalg_norm``.
_FAMILIES = frozenset(("linalg", "special", "fft", "sparse", "masked"))
_DUNDER = re.compile(r"__(\w+?)__")
#: Operators of Python's without ``__`` and, for those that assign or are reflected, without ``i`` or ``r``.
_ARITHMETIC = frozenset(
    ("add", "sub", "mul", "matmul", "truediv", "floordiv", "mod", "pow", "div", "and", "or", "xor", "lshift", "rshift")
)
#: Names that end with ``_`` and write no data.
_WRITES_NO_DATA = frozenset(("requires_grad_", "detach_", "share_memory_", "resolve_conj_", "rename_", "retain_grad_"))


def canonical(name: str) -> str:
    """Return the name that the table has for an operator, however `name` spells it.

    It takes names of Python (``torch.Tensor.masked_fill_``, ``__truediv__``), of the dispatcher (``aten::div.Tensor``,
    ``aten.div.Tensor``, ``div.Tensor``) and of autograd nodes (``DivBackward0``). Two spellings of an operator that the
    table does not have give the same name too. Nodes of the user's functions (``MyFunctionBackward``) keep theirs.
    """
    return info(name).name


@lru_cache(maxsize=8192)
def info(name: str) -> OpInfo:
    """Return the row of an operator; of one that the table does not have a row without a fact.

    :param name: a name as ``canonical`` takes it.
    """
    key = _key(name)
    return _BY_KEY.get(key) or OpInfo(key)


def writes_in_place(name: str) -> bool:
    """Return whether an operator called `name`, as Python spells it, always writes to its first argument."""
    dunder = _DUNDER.fullmatch(name)
    if dunder is not None:
        return dunder[1] == "setitem" or (dunder[1][:1] == "i" and dunder[1][1:] in _ARITHMETIC)
    return name.endswith("_") and name not in _WRITES_NO_DATA


def overwrites(name: str) -> bool:
    """Return whether an operator of the dispatcher writes to its first argument and does not read it."""
    base = _base(name)
    return writes_in_place(base) and info(base).overwrites


def rows(fact: Callable[[OpInfo], bool] = lambda row: True) -> tuple[OpInfo, ...]:
    """Return the rows of which `fact` holds."""
    return tuple(row for row in ROWS if fact(row))


def names_of(fact: Callable[[OpInfo], bool]) -> frozenset[str]:
    """Return the canonical names of the operators of which `fact` holds."""
    return frozenset(row.name for row in rows(fact))


def canonical_names(words: str) -> frozenset[str]:
    """Return the canonical names of operators, given in one string with spaces between them."""
    return frozenset(map(canonical, words.split()))


def _key(name: str) -> str:
    """Return the key that all spellings of an operator's name share: functions, in-place methods, nodes, ATen ops."""
    if name.startswith(_AUTOGRAD):
        name = name.removeprefix(_AUTOGRAD)
    node = _NODE.fullmatch(name)
    if node is not None:
        return _squashed(node[1] + (node[2] or ""))
    if name.endswith("Backward"):
        return name
    base = _base(name)
    dunder = _DUNDER.fullmatch(base)
    if dunder is None:
        return _squashed(base)
    inner = dunder[1]
    if inner in _ARITHMETIC:
        return inner
    if inner[:1] == "r" and inner[1:] == "sub":
        return "rsub"
    return inner[1:] if inner[:1] in "ir" and inner[1:] in _ARITHMETIC else base


def _base(name: str) -> str:
    """Return the name of an operator without its namespaces and its overload."""
    first, *rest = name.removeprefix("aten::").split(".")
    while rest and first in _NAMESPACES:
        first, *rest = rest
    return f"{first}_{rest[0]}" if rest and first in _FAMILIES else first


def _squashed(name: str) -> str:
    """Return `name` without underscores and capitals, in which torch's spellings differ: ``Log1P``, ``log1p_``."""
    return name.replace("_", "").lower()


def _index() -> dict[str, OpInfo]:
    """Build the index from normalised names and aliases to the rows of the operator table.
    :raises ValueError: two rows share a name.
    """
    index: dict[str, OpInfo] = {}
    for row in ROWS:
        for name in (row.name, *row.aliases):
            key = name if _DUNDER.fullmatch(name) else _squashed(name)
            if index.setdefault(key, row) is not row:
                raise ValueError(f"two rows are called {name}: {index[key].name} and {row.name}")
    return index


_BY_KEY = _index()
