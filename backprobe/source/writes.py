"""The writes of a source file: assignments, writes to attributes and elements, deletions, and calls that write."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..ops.names import writes_in_place

if TYPE_CHECKING:
    from .index import SourceIndex

#: Methods that add to a container.
CHANGERS = frozenset({"append", "extend", "add", "appendleft", "insert", "update", "setdefault", "put", "push"})
#: Methods that write into an array, and functions that write into their first argument.
WRITERS = frozenset({"fill", "sort", "partition", "itemset", "setfield", "byteswap"})
WRITE_FIRST = frozenset({"copyto", "shuffle", "put", "place", "putmask", "fill_diagonal", "put_along_axis"})
#: Methods of modules, and functions, that write to weights.
WRITE_WEIGHTS = frozenset({"load_state_dict", "reset_parameters", "update_parameters", "vector_to_parameters"})


@dataclass(frozen=True, slots=True)
class Write:
    """A write in the source.

    :ivar how: ``assign``, ``augment`` (``+=``), ``delete``, ``loop``, ``with`` or ``case``; for a call ``in-place`` (of
        an op such as ``add_``), ``weights``, ``out``, ``array``, ``add`` (to a container), or ``setattr``.
    :ivar target: the variable, attribute or element; for a call, the object that it writes to.
    :ivar value: the value; for a loop, the values; for a call of an op, the call.
    :ivar op: the name of the called function.
    """

    how: str
    target: ast.AST
    value: ast.AST | None
    node: ast.AST
    op: str = ""

    @property
    def line(self) -> int:
        return int(getattr(self.node, "lineno", 0) or self.target.lineno)  # type: ignore[attr-defined]


def writes_of(node: ast.AST, index: SourceIndex) -> Iterator[Write]:
    """Yield the writes that a statement or call makes itself: assignments, loop variables, deletions, calls that write.

    Writes of nodes below it are left out.
    """
    if isinstance(node, ast.Assign):
        for target in node.targets:
            yield from (Write("assign", t, value, node) for t, value in _pairs(target, node.value))
    elif isinstance(node, (ast.AnnAssign, ast.NamedExpr)) and node.value is not None:
        yield Write("assign", node.target, node.value, node)
    elif isinstance(node, ast.AugAssign):
        yield Write("augment", node.target, node.value, node)
    elif isinstance(node, (ast.For, ast.AsyncFor, ast.comprehension)):
        yield from (Write("loop", t, node.iter, node) for t, _ in _pairs(node.target))
    elif isinstance(node, ast.withitem) and node.optional_vars is not None:
        yield from (Write("with", t, node.context_expr, index.parents[node]) for t, _ in _pairs(node.optional_vars))
    elif isinstance(node, ast.Delete):
        yield from (Write("delete", t, None, node) for target in node.targets for t, _ in _pairs(target))
    elif isinstance(node, ast.MatchAs) and node.name is not None:
        around = node
        while not isinstance(around, ast.Match):
            around = index.parents[around]  # type: ignore[assignment]
        target = ast.copy_location(ast.Name(node.name, ast.Store()), node)
        index.scopes[target] = index.scopes[node]
        yield Write("case", target, around.subject, node)
    elif isinstance(node, ast.Call):
        yield from _writes_of_call(node, index)


def _writes_of_call(node: ast.Call, index: SourceIndex) -> Iterator[Write]:
    """Yield the write that a call makes, if it makes one: ``out=``, ``setattr``, and functions known to write."""
    owner = node.func.value if isinstance(node.func, ast.Attribute) else None
    name = getattr(node.func, "attr", "") or getattr(node.func, "id", "")
    is_function = owner is None or index.is_imported(owner) or getattr(owner, "attr", "") == "init"
    first = node.args[0] if node.args else None
    target = first if is_function else owner
    keywords = {k.arg: k.value for k in node.keywords}
    if "out" in keywords:
        yield Write("out", keywords["out"], node, node, name)
    elif name in ("setattr", "__setattr__") and len(node.args) == 3:
        attribute = ast.Attribute(node.args[0], getattr(node.args[1], "value", ""), ast.Store())
        yield Write("setattr", ast.copy_location(attribute, node), node.args[2], node, name)
    elif owner is not None and name in CHANGERS | WRITERS and not (is_function and isinstance(owner, ast.Name)):
        how = "add" if name in CHANGERS else "array"
        yield Write(how, owner, node.args[-1] if node.args else node, node, name)
    elif first is not None and name in WRITE_FIRST:
        yield Write("array", first, node, node, name)
    elif target is not None:
        if name in WRITE_WEIGHTS:
            yield Write("weights", target, node, node, name)
        elif (name.strip("_") and writes_in_place(name)) or _may_be_true(keywords.get("inplace")):
            yield Write("in-place", target, node, node, name)


def _may_be_true(value: ast.AST | None) -> bool:
    """Return whether an argument is given and may be true: only a constant is known."""
    return value is not None and (not isinstance(value, ast.Constant) or bool(value.value))


def _pairs(target: ast.AST, value: ast.AST | None = None) -> Iterator[tuple[ast.AST, ast.AST | None]]:
    """Yield each target of an assignment with its value; tuples element by element if both sides are equally long."""
    stack = [(target, value)]
    while stack:
        target, value = stack.pop()
        if isinstance(target, ast.Starred):
            stack.append((target.value, value))
        elif isinstance(target, (ast.Tuple, ast.List)):
            values = value.elts if isinstance(value, (ast.Tuple, ast.List)) else []
            alike = len(values) == len(target.elts)
            alike = alike and not any(isinstance(one, ast.Starred) for one in (*target.elts, *values))
            stack += reversed(list(zip(target.elts, values if alike else [value] * len(target.elts), strict=True)))
        else:
            yield target, value
