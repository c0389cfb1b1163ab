"""The index of a source file: its syntax tree, scopes, names, and writes.

Note [Source index]: a file is parsed when a finding first asks about it, and never on the hot path. The index resolves
names by Python's scoping rules, so that two functions may use one name for different things. A file that cannot be read
or parsed has an empty index. Nothing here recurses, since generated code may be nested deeply.
"""

from __future__ import annotations

import ast
import linecache
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from functools import cached_property
from types import CodeType
from typing import Any, NamedTuple

from ..records import Site
from .writes import Write, writes_of

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
LOOPS = (ast.For, ast.AsyncFor, ast.While)
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
#: Nodes without a place and without names. Python uses one object for all of a kind.
_MARKS = (ast.expr_context, ast.operator, ast.unaryop, ast.boolop, ast.cmpop)
#: Maximum number of files whose index is kept.
MAX_INDEXED_FILES = 64


class Scope:
    """A module, class, function, lambda or comprehension, with the names that it binds.

    :ivar bound: name -> the nodes that bind it here.
    :ivar declared: name -> ``ast.Global`` or ``ast.Nonlocal``.
    """

    __slots__ = ("bound", "declared", "name", "node", "parent")

    def __init__(self, node: ast.AST, name: str, parent: Scope | None) -> None:
        self.node, self.name, self.parent = node, name, parent
        self.bound: dict[str, list[ast.AST]] = {}
        self.declared: dict[str, type[ast.stmt]] = {}

    @property
    def is_class(self) -> bool:
        return isinstance(self.node, ast.ClassDef)

    @property
    def owner(self) -> Scope | None:
        """The class of which this function is a method."""
        return self.parent if isinstance(self.node, FUNCTIONS) and self.parent and self.parent.is_class else None

    @property
    def function(self) -> Scope:
        """The function or module around a class, lambda or comprehension; a function or module itself."""
        scope = self
        while scope.parent is not None and not isinstance(scope.node, FUNCTIONS):
            scope = scope.parent
        return scope

    def holder(self, name: str) -> Scope:
        """Return the scope to which `name` belongs if it is used in this scope; for a name that nothing binds, the
        module.
        """
        scope: Scope = self
        while scope.parent is not None:
            declared = scope.declared.get(name)
            if declared is ast.Global:
                break
            if declared is None and name in scope.bound and (scope is self or not scope.is_class):
                return scope
            scope = scope.parent
        while scope.parent is not None:
            scope = scope.parent
        return scope

    @property
    def parameters(self) -> list[str]:
        """The names of the positional parameters; without the object of a method."""
        arguments = getattr(self.node, "args", None)
        if not isinstance(arguments, ast.arguments):
            return []
        names = [one.arg for one in (*arguments.posonlyargs, *arguments.args)]
        return names[1:] if self.instance else names

    @property
    def instance(self) -> str:
        """The name of the object of a method, by convention ``self``."""
        if self.owner is None or any(last_name(one) == "staticmethod" for one in self.node.decorator_list):  # type: ignore[attr-defined]
            return ""
        arguments = self.node.args  # type: ignore[attr-defined]
        return next((one.arg for one in (*arguments.posonlyargs, *arguments.args)), "")


class Reference(NamedTuple):
    """The variable or attribute that an expression names.

    :ivar owner: the scope of a variable; the class of an attribute of ``self``; ``None`` for that of another object.
    """

    name: str
    is_attribute: bool
    owner: Scope | None


class SourceIndex:
    """The syntax tree of a file: its nodes in source order, outer ones first, each with its parent and its scope."""

    def __init__(self, file: str, lines: list[str]) -> None:
        self.file, self.lines = file, lines
        try:
            self.tree = ast.parse("".join(lines))
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            self.tree = ast.Module([], [])
        self.module = Scope(self.tree, "<module>", None)
        self.nodes: list[ast.AST] = []
        self.parents: dict[ast.AST, ast.AST] = {}
        self.scopes: dict[ast.AST, Scope] = {}
        #: Nodes that open a scope -> that scope.
        self.opened: dict[ast.AST, Scope] = {self.tree: self.module}
        self._by_type: dict[type, list[Any]] = {}
        self._positions: dict[ast.AST, int] = {}
        declared = self._read()
        for scope, name, node in declared:
            scope.holder(name).bound.setdefault(name, []).append(node)
        self._sizes = [1] * len(self.nodes)
        for i in range(len(self.nodes) - 1, 0, -1):
            self._sizes[self._positions[self.parents[self.nodes[i]]]] += self._sizes[i]

    def _read(self) -> list[tuple[Scope, str, ast.AST]]:
        """Visit all nodes and store them with parents and scopes.

        Returns the bindings of names that are declared ``global`` or ``nonlocal``: they belong to another scope, which
        may not have been read yet.
        """
        declared = []
        stack: list[tuple[ast.AST, Scope]] = [(self.tree, self.module)]
        while stack:
            node, scope = stack.pop()
            self._positions[node] = len(self.nodes)
            self.nodes.append(node)
            self.scopes[node] = scope
            self._by_type.setdefault(type(node), []).append(node)
            if isinstance(node, (ast.Global, ast.Nonlocal)):
                scope.declared.update(dict.fromkeys(node.names, type(node)))
            for name in _bound_by(node):
                if name in scope.declared:
                    declared.append((scope, name, node))
                else:
                    scope.bound.setdefault(name, []).append(node)
            children = self._children(node, scope)
            self.parents.update((child, node) for child, _ in children)
            stack += reversed(children)
        return declared

    def _children(self, node: ast.AST, scope: Scope) -> list[tuple[ast.AST, Scope]]:
        """Return the nodes below a node, each with the scope in which it is evaluated, opening a new scope where one
        begins.
        """
        inner, outer, outside = scope, scope, list[Any]()
        if isinstance(node, (*FUNCTIONS, ast.ClassDef, ast.Lambda, *COMPREHENSIONS)):
            inner = self.opened[node] = Scope(node, getattr(node, "name", f"<{type(node).__name__.lower()}>"), scope)
            outside = [getattr(node, "returns", None)]
            for part in ("decorator_list", "bases", "keywords"):
                outside += getattr(node, part, ())
        elif isinstance(node, (ast.arguments, ast.arg)):
            outer = scope.parent or scope
            outside = [*getattr(node, "defaults", ()), *getattr(node, "kw_defaults", ())]
            outside.append(getattr(node, "annotation", None))
        elif isinstance(node, ast.comprehension) and self.parents[node].generators[0] is node:  # type: ignore[attr-defined]
            outer, outside = scope.parent or scope, [node.iter]
        elif isinstance(node, ast.NamedExpr):  # binds in the function around a comprehension
            outside = [node.target]
            while isinstance(outer.node, COMPREHENSIONS) and outer.parent is not None:
                outer = outer.parent
        below = [child for child in ast.iter_child_nodes(node) if not isinstance(child, _MARKS)]
        return [(child, outer if any(child is one for one in outside) else inner) for child in below]

    def of(self, *types: type) -> list[Any]:
        """Return the nodes of these types, one type after the other."""
        return [node for one in types for node in self._by_type.get(one, ())]

    def walk(self, node: ast.AST) -> list[ast.AST]:
        """Return `node` and all nodes below it, outer ones first."""
        at = self._positions[node]
        return self.nodes[at : at + self._sizes[at]]

    def contains(self, outer: ast.AST, node: ast.AST) -> bool:
        """Return whether `node` is `outer`, or below it."""
        at = self._positions[outer]
        return at <= self._positions[node] < at + self._sizes[at]

    def around(self, node: ast.AST) -> Iterator[ast.AST]:
        """Yield the nodes around `node`, innermost first, up to its function, lambda or class."""
        while (node := self.parents.get(node, self.tree)) is not self.tree:
            if isinstance(node, (*FUNCTIONS, ast.Lambda, ast.ClassDef)):
                return
            yield node

    @cached_property
    def _by_function(self) -> dict[Scope, list[ast.AST]]:
        """Function, lambda or module -> its nodes, without those of functions nested in it."""
        found: dict[Scope, list[ast.AST]] = {}
        for node in self.nodes:
            found.setdefault(self.scopes[node].function, []).append(node)
        return found

    def inside(self, function: Scope) -> list[ast.AST]:
        """Return the nodes of a function, lambda or module, without those of functions nested in it."""
        if isinstance(function.node, ast.Lambda):
            return self.walk(function.node)
        return self._by_function.get(function, [])

    def exits(self, function: Scope) -> list[ast.AST]:
        """Return the nodes at which a function returns or yields, outer blocks first; a lambda itself."""
        exits = [one for one in self.inside(function) if isinstance(one, (ast.Return, ast.Yield, ast.Lambda))]
        exits = [one for one in exits if not isinstance(one, ast.Lambda) or one is function.node]
        return sorted(exits, key=lambda one: len(list(self.around(one))))

    @cached_property
    def by_line(self) -> dict[int, list[ast.AST]]:
        """Line -> the nodes that begin there."""
        found: dict[int, list[ast.AST]] = {}
        for node in self.nodes:
            if (line := getattr(node, "lineno", None)) is not None:
                found.setdefault(line, []).append(node)
        return found

    @cached_property
    def writes(self) -> list[Write]:
        """All writes to variables, attributes and elements, in source order."""
        return [write for node in self.nodes for write in writes_of(node, self)]

    @cached_property
    def _write_positions(self) -> list[int]:
        """The position of each write in the order in which nodes were read: ascending, for a binary search."""
        return [self._positions[write.node] for write in self.writes]

    def writes_in(self, node: ast.AST) -> list[Write]:
        """Return the writes in a function, or in any other part of the file, nested functions included."""
        first = self._positions[node]
        at = bisect_left(self._write_positions, first)
        return self.writes[at : bisect_left(self._write_positions, first + self._sizes[first])]

    @cached_property
    def writes_by_reference(self) -> dict[Reference | None, list[Write]]:
        """The writes to each variable, to each attribute, and to their elements."""
        found: dict[Reference | None, list[Write]] = {}
        for write in self.writes:
            found.setdefault(self.reference(write.target), []).append(write)
        return found

    @cached_property
    def values(self) -> dict[ast.AST, ast.AST | None]:
        """Target of an assignment or a loop -> the assigned value, or the iterable."""
        return {write.target: write.value for write in self.writes if write.how in ("assign", "loop")}

    @cached_property
    def _functions(self) -> list[tuple[int, int, Scope]]:
        """First and last line, with decorators, of every function and lambda, in source order."""
        scopes = [s for n, s in self.opened.items() if isinstance(n, (*FUNCTIONS, ast.Lambda))]
        found = [(first_line(s.node), s.node.end_lineno, s) for s in scopes]  # type: ignore[attr-defined]
        return sorted(found, key=lambda one: (one[0], -one[1]))

    def function_at(self, line: int, name: str = "") -> Scope:
        """Return the innermost function around a line, if possible of this name; the module outside of functions."""
        before = self._functions[: bisect_right(self._functions, line, key=lambda one: one[0])]
        # The line of a decorator belongs to the code around the function.
        around = [s for _, last, s in before if s.node.lineno <= line <= last and isinstance(s.node, FUNCTIONS)]  # type: ignore[attr-defined]
        named = [scope for scope in around if scope.name == name]
        return (named or around or [self.module])[-1]

    def function_of(self, code: CodeType) -> Scope | None:
        """Return the function or lambda whose code is `code`; ``None`` if the file does not have it."""
        if code.co_name == "<module>":
            return self.module
        count = code.co_argcount + code.co_kwonlyargcount
        found = [s for first, _, s in self._functions if first == code.co_firstlineno and s.name == code.co_name]
        exact = [s for s in found if set(code.co_varnames[:count]) <= s.bound.keys()]  # several lambdas on one line
        return next(iter(exact or found), None)

    def holder(self, name: ast.Name) -> Scope:
        """Return the scope to which a variable belongs."""
        return self.scopes[name].holder(name.id)

    def class_of(self, node: ast.AST | None) -> Scope | None:
        """Return the class whose object `node` is, if it is ``self`` in a method or in a function inside one; else
        ``None``.
        """
        if not isinstance(node, ast.Name) or node not in self.scopes:
            return None
        holder = self.holder(node)
        return holder.owner if holder.instance == node.id else None

    def reference(self, node: ast.AST | None) -> Reference | None:
        """Return the variable or attribute that `node` names, or of which it names an element; ``None`` for other
        expressions.
        """
        node = container(node)
        if isinstance(node, ast.Name):
            return Reference(node.id, False, self.holder(node))
        return Reference(node.attr, True, self.class_of(node.value)) if isinstance(node, ast.Attribute) else None

    def variables(self, nodes: Iterable[ast.AST], context: type[ast.expr_context]) -> set[tuple[Scope, str]]:
        """Return the variables that are read (``ast.Load``) or assigned (``ast.Store``) below `nodes`."""
        below = (one for node in nodes for one in self.walk(node))
        return {(self.holder(one), one.id) for one in below if isinstance(one, ast.Name) and type(one.ctx) is context}

    def is_imported(self, node: ast.AST) -> bool:
        """Return whether an expression such as ``torch.nn.init`` begins with the name of an import."""
        while isinstance(node, ast.Attribute):
            node = node.value
        bound = self.holder(node).bound.get(node.id, ()) if isinstance(node, ast.Name) else ()
        return any(isinstance(one, ast.alias) for one in bound)

    def site(self, node: ast.AST) -> Site:
        """Return the line on which `node` begins."""
        return self.site_at(getattr(node, "lineno", 0), self.scopes[node].function)

    def site_at(self, line: int, function: Scope) -> Site:
        """Return a line of the file as a site in `function`, with its text."""
        text = self.lines[line - 1].strip() if 0 < line <= len(self.lines) else ""
        return Site(self.file, line, function.name, text)


_indexes: dict[str, SourceIndex] = {}


def index_of(file: str, names: dict[str, object] | None = None) -> SourceIndex:
    """Return the index of a file (Note [Source index]), which is kept until ``linecache`` reads a newer version of the
    file.

    :param names: the globals of its module, whose loader may be the only one that has the source.
    """
    lines = linecache.getlines(file, names)
    known = _indexes.pop(file, None)
    if known is None or (lines and known.lines is not lines):
        known = SourceIndex(file, lines)
    _indexes[file] = known
    for least in list(_indexes)[:-MAX_INDEXED_FILES]:
        _indexes.pop(least, None)
    return known


def indexes(files: Iterable[str], *words: str) -> Iterator[SourceIndex]:
    """Yield the index of each of `files` that contains one of `words`; the others are not parsed."""
    for file in files:
        if not words or any(word in line for line in linecache.getlines(file) for word in words):
            yield index_of(file)


def last_name(node: ast.AST | None) -> str:
    """Return the name of a variable, or of an attribute without its object; empty for other expressions."""
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def arguments_of(call: ast.Call) -> list[ast.expr]:
    """Return the arguments of a call, those by name last."""
    return [*call.args, *(word.value for word in call.keywords)]


def container(node: ast.AST | None) -> ast.AST | None:
    """Return ``x`` for ``x[0][1]`` and ``*x``; other nodes as they are."""
    while isinstance(node, (ast.Subscript, ast.Starred)):
        node = node.value
    return node


def first_line(node: ast.AST) -> int:
    """Return the line on which a statement begins, its decorators included: the first line of a function's code."""
    return min(int(one.lineno) for one in (node, *getattr(node, "decorator_list", ())))  # type: ignore[attr-defined]


def spans(node: ast.AST, line: int) -> bool:
    """Return whether a node includes a line."""
    return getattr(node, "lineno", 0) <= line <= (getattr(node, "end_lineno", None) or 0)


def text_of(node: ast.AST) -> str:
    """Return the source of an expression; empty if it is nested too deeply."""
    try:
        return ast.unparse(node)
    except RecursionError:
        return ""


def _bound_by(node: ast.AST) -> Iterable[str]:
    """Return the names that a node itself binds, not those bound by nodes below it."""
    if isinstance(node, ast.Name):
        return () if isinstance(node.ctx, ast.Load) else (node.id,)
    if isinstance(node, ast.arg):
        return (node.arg,)
    if isinstance(node, ast.alias):
        return (node.asname or node.name.partition(".")[0],)
    name = getattr(node, "rest" if isinstance(node, ast.MatchMapping) else "name", None)
    return (name,) if isinstance(name, str) else ()
