"""Source lines that made the tensor to which a line writes, or the two that it compares."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from typing import NamedTuple

from ..records import Site
from .index import Scope, SourceIndex, container, index_of, last_name, spans, text_of

#: Maximum number of calls that are followed from the parameter of a function to the argument.
MAX_CALLS_UP = 3


def made_at(running: Sequence[Site]) -> Site | None:
    """Return the line that last assigned the variable which the innermost of the lines `running` writes to.

    A variable that is a parameter is followed to the line that called the function. ``None`` if no line is found.

    :param running: the lines of the user's functions that are running, the innermost last.
    """
    if not running:
        return None
    index = index_of(running[-1].file)
    node = _operand(index, index.function_at(running[-1].line, running[-1].function), running[-1].line)
    return _assigned_before(running, node)


class Compared(NamedTuple):
    """The two sides of a difference, a quotient or a distance: their source, and the lines that assigned them."""

    texts: tuple[str, str] = ("", "")
    made: tuple[Site | None, Site | None] = (None, None)

    @property
    def reference(self) -> int | None:
        """The index of the side whose name says that it is the reference, such as ``old_logp``; ``None``
        unless one is.
        """
        named = [i for i, text in enumerate(self.texts) if not REFERENCES.isdisjoint(_words(text))]
        return named[0] if len(named) == 1 else None


#: Words in the names of values that are meant to stay as they are.
REFERENCES = frozenset(
    ("old", "ref", "reference", "prev", "previous", "target", "teacher", "frozen", "base", "behavior", "behaviour")
)

#: Parts of the names of functions that compare their arguments.
_COMPARING = re.compile("kl|div|loss|dist|sub|mse|criter")


def _words(text: str) -> list[str]:
    """Return the words of a name, in lower case: split at underscores and at capitals."""
    return re.split(r"[^a-z]+", re.sub(r"(?<=[a-z])(?=[A-Z])", "_", text).lower())


def compared_on(running: Sequence[Site], is_operator: bool) -> Compared:
    """Return what the innermost of the lines `running` compares; nothing if several operations of it may do so.

    :param running: the lines of the user's functions that are running, the innermost last.
    :param is_operator: it is a difference or a quotient, which may be written as an operator.
    """
    if not running:
        return Compared()
    line = running[-1].line
    index = index_of(running[-1].file)
    nodes = [one for one in index.inside(index.function_at(line, running[-1].function)) if spans(one, line)]
    operators = [(one.left, one.right) for one in nodes if _is_difference(one)] if is_operator else []  # type: ignore[attr-defined]
    calls = [one for one in nodes if isinstance(one, ast.Call) and len(one.args) > 1]
    named = [one for one in calls if _COMPARING.search(last_name(one.func).lower())]
    of_calls = ([(one.args[0], one.args[1]) for one in some] for some in (named, calls))
    for pairs in (operators, *of_calls):
        for least in (2, 1):  # sides that are variables
            found = {(text_of(a), text_of(b)): (a, b) for a, b in pairs if _is_plain(a) + _is_plain(b) >= least}
            found = {texts: pair for texts, pair in found.items() if not any(isinstance(x, ast.Constant) for x in pair)}
            if len(found) == 1:
                ((texts, sides),) = found.items()
                one, other = (_assigned_before(running, side) if _is_plain(side) else None for side in sides)
                return Compared(texts, (one, other))
            if found:
                return Compared()
    return Compared()


def _is_difference(node: ast.AST) -> bool:
    """Return whether an expression is a difference or a quotient."""
    return isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Sub, ast.Div))


def _is_plain(node: ast.AST) -> bool:
    """Return whether an expression is a variable, an attribute, or an element of one."""
    while isinstance(node, (ast.Subscript, ast.Attribute)):
        node = node.value
    return isinstance(node, ast.Name)


def _assigned_before(running: Sequence[Site], node: ast.AST | None) -> Site | None:
    """Return the line that last assigned the variable of an expression on the innermost of the lines `running`.

    A parameter is followed to the argument of the calling line, at most ``MAX_CALLS_UP`` levels in all.
    """
    called: tuple[str, int, str] | None = None
    for site in reversed(running[-MAX_CALLS_UP:]):
        index = index_of(site.file)
        function = index.function_at(site.line, site.function)
        if called is not None:
            node = _argument(index, function, site.line, called)
        if node is None:
            return None
        found = _assigned(index, function, node, site.line)
        if found is not None:
            return found
        root = container(_chain(node))
        if not isinstance(root, ast.Name) or root.id not in function.parameters:
            return None
        called = function.name, function.parameters.index(root.id), root.id
    return None


def _operand(index: SourceIndex, function: Scope, line: int) -> ast.AST | None:
    """Return the expression that a line writes to, or else the first argument of a call on it."""
    nodes = [one for one in index.inside(function) if spans(one, line)]
    for node in nodes:
        if isinstance(node, ast.AugAssign):
            return node.target
        target = node.targets[0] if isinstance(node, ast.Assign) else None
        if isinstance(target, ast.Subscript):
            return target
        if isinstance(target, ast.Attribute) and target.attr == "requires_grad":
            return target.value
    calls = [one for one in nodes if isinstance(one, ast.Call)]
    for call in calls:
        out = next((one.value for one in call.keywords if one.arg == "out"), None)
        if out is not None:
            return out
    for call in calls:
        func = call.func
        if last_name(func).endswith("_"):
            if isinstance(func, ast.Attribute) and not index.is_imported(func.value):
                return func.value
            return next(iter(call.args), None)
    return next((call.args[0] for call in calls if call.args), None)


def _chain(node: ast.AST) -> ast.AST:
    """Return ``x`` for ``x.view(-1)[0]``, ``x.data`` and ``x.T``; an attribute of an object is kept."""
    while True:
        node = container(node) or node
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            node = node.func.value
        elif isinstance(node, ast.Attribute) and node.attr in ("data", "T", "mT"):
            node = node.value
        else:
            return node


def _assigned(index: SourceIndex, function: Scope, node: ast.AST, line: int) -> Site | None:
    """Return the last line before `line` that assigns the variable of an expression, or the first of an attribute."""
    target = index.reference(_chain(node))
    if target is None:
        return None
    if target.is_attribute:
        writes = [one for one in index.writes_by_reference.get(target, ()) if one.how == "assign"]
        return index.site(writes[0].node) if writes else None
    writes = [
        one
        for one in index.writes_by_reference.get(target, ())
        if one.how in ("assign", "loop", "with") and one.line <= line and not isinstance(one.target, ast.Subscript)
    ]
    if target.owner is function:
        writes = [one for one in writes if one.line < line or one.how == "loop"]
    return index.site(max(writes, key=lambda one: one.line).node) if writes else None


def _argument(index: SourceIndex, function: Scope, line: int, called: tuple[str, int, str]) -> ast.AST | None:
    """Return what a call at `line` passes as a parameter; ``None`` if it passes nothing.

    :param called: name of the called function, position and name of the parameter.
    """
    name, position, parameter = called
    for node in index.inside(function):
        if isinstance(node, ast.Call) and spans(node, line):
            if last_name(node.func) != name and name not in ("forward", "__call__", "__init__"):
                continue
            given = next((one.value for one in node.keywords if one.arg == parameter), None)
            if given is None and position < len(node.args):
                given = node.args[position]
            if given is not None:
                return given
    return None


def takes_inputs(site: Site | None) -> bool:
    """Return whether the statement at `site` uses a parameter of its function, apart from its object."""
    if site is None:
        return False
    index = index_of(site.file)
    function = index.function_at(site.line, site.function)
    given = set(function.parameters)
    names = (one for node in index.by_line.get(site.line, []) for one in index.walk(node) if isinstance(one, ast.Name))
    return any(one.id in given for one in names)


def adds_number_read_there(statement: ast.stmt, index: SourceIndex) -> bool:
    """Return whether a statement adds the number of a tensor that it reads: ``loss + 0.1 * penalty.item()``.

    Only sums and products may surround the read, and the tensor must have no other use in the statement: a difference
    such as ``loss - loss.item()`` is meant.
    """
    nodes = index.walk(statement)
    for call in nodes:
        if not isinstance(call, ast.Call):
            continue
        read = call.func.value if isinstance(call.func, ast.Attribute) and call.func.attr == "item" else None
        if isinstance(call.func, ast.Name) and call.func.id == "float" and len(call.args) == 1:
            read = call.args[0]
        reference = index.reference(read) if read is not None else None
        if read is None or any(
            node is not read and reference is not None and index.reference(node) == reference
            for node in nodes
            if isinstance(node, (ast.Name, ast.Attribute))
        ):
            continue
        around = []
        for node in index.around(call):
            if node is statement:
                break
            around.append(node)
        plain = all(isinstance(node, ast.BinOp) and isinstance(node.op, _ARITHMETIC) for node in around)
        sums = any(isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Add, ast.Sub)) for node in around)
        if plain and (sums or (isinstance(statement, ast.AugAssign) and isinstance(statement.op, (ast.Add, ast.Sub)))):
            return True
    return False


_ARITHMETIC = (ast.Add, ast.Sub, ast.Mult, ast.Div)
