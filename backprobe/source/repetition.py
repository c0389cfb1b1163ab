"""Finds the expressions that repeat a reference to one object: ``[layer] * n``, ``dict.fromkeys`` and ``repeat``."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterator
from typing import NamedTuple

from ..records import Site
from .frames import Frames
from .index import FUNCTIONS, Reference, SourceIndex, container, indexes, last_name, text_of

#: Words by which an author says that sharing is meant, in names and comments near the line: layers that share or tie
#: weights, and networks that apply one layer again and again.
MEANT = re.compile(
    r"shar(e|ing)|(?<![a-z])(un)?tie(s|d|_|\b)|tying|albert|universal|recur|unroll|iter(s|at|_|\b)|loop|siam|twin|reus|"
    r"same[a-z ]{0,12} (weight|parameter|layer|module|block|head|encoder|network)",
    re.IGNORECASE,
)
#: Words of a number of repetitions that are no layers: of time, or of agents that commonly share a policy.
MEANT_BY_NUMBER = re.compile(r"step|time|agent|view|repe|cycl|pass|round|refin|player", re.IGNORECASE)
#: The most assignments that are followed from the repetition to the container, and comment lines above it.
MAX_ASSIGNMENTS, MAX_COMMENT_LINES = 4, 3
#: The containers of torch, methods that put several objects into a list or container, and other calls that pass on what
#: they get.
CONTAINERS, EXTENDERS = frozenset({"ModuleList", "Sequential", "ModuleDict"}), ("extend", "update")
PASSING = frozenset({*EXTENDERS, "list", "tuple", "dict", "OrderedDict", "zip", "enumerate", "reversed", "chain"})


class Repetition(NamedTuple):
    """An expression that repeats references.

    :ivar registered: a repeated object is an attribute of ``self``: a module that the class has already.
    :ivar meant: the source says that sharing is meant, or chooses between sharing and something else.
    """

    site: Site
    registered: bool
    meant: bool


def repetitions(
    frames: Frames, attribute: str, owners: Collection[str], class_name: str, count: int
) -> list[Repetition]:
    """Return the expressions in the user's code that may have put a module `count` times into a container.

    :param attribute: the attribute that holds the container; empty for an outermost module.
    :param owners: the names of the classes of the module that has this attribute.
    :param class_name: the class of the repeated module.
    """
    named = list[Repetition]()
    #: By likeness of what is repeated: what may be kept by this attribute, or an outermost module.
    elsewhere = dict[int, list[Repetition]]({1: [], 2: []})
    makers = _makers(frames, attribute, owners)
    for index in indexes(frames.users_files(), "*", "fromkeys", "repeat"):
        for node, elements, number in _repeating(index):
            if isinstance(number, ast.Constant) and isinstance(number.value, int) and not 1 < number.value <= count:
                continue
            repeated = {one: likeness for one in elements if (likeness := _likeness(index, one, class_name))}
            if not repeated:
                continue
            attributes, is_elsewhere = _holders(index, node)
            registered = any(isinstance(one, ast.Attribute) for one in repeated)
            is_meant = _is_meant(index, node) or bool(number is not None and MEANT_BY_NUMBER.search(text_of(number)))
            repetition = Repetition(index.site(node), registered, is_meant)
            if any(one.name == attribute and (one.owner is None or one.owner.name in owners) for one in attributes):
                named.append(repetition)
            elif is_elsewhere and (not makers or repetition.site.function in makers):
                elsewhere[max(repeated.values())].append(repetition)
    likeliest = elsewhere[2] or elsewhere[1]
    return named or (likeliest if len(likeliest) == 1 else [])


def _makers(frames: Frames, attribute: str, owners: Collection[str]) -> set[str]:
    """Return the names of the functions and classes called in what the user's code assigns to an attribute of these
    classes.
    """
    found = set[str]()
    for index in indexes(frames.users_files(), attribute) if attribute else ():
        for write in index.writes:
            target = index.reference(write.target) if write.how == "assign" and write.value is not None else None
            is_own = target is not None and target.is_attribute and target.name == attribute
            if is_own and target.owner is not None and target.owner.name in owners:  # type: ignore[union-attr]
                found |= {last_name(one.func) for one in index.walk(write.value) if isinstance(one, ast.Call)}  # type: ignore[arg-type]
    return found


def _repeating(index: SourceIndex) -> Iterator[tuple[ast.expr, list[ast.expr], ast.expr | None]]:
    """Yield the expressions that repeat references, each with the repeated expressions and the number of repetitions.

    The number is ``None`` if the source does not state it.
    """
    for node in index.of(ast.BinOp):
        if isinstance(node.op, ast.Mult):
            for side, number in ((node.left, node.right), (node.right, node.left)):
                if isinstance(side, (ast.List, ast.Tuple)):
                    yield node, side.elts, number
    for call in index.of(ast.Call):
        name = last_name(call.func)
        if name == "fromkeys" and len(call.args) == 2:
            yield call, call.args[1:], None
        elif name == "repeat" and index.is_imported(call.func) and call.args:
            yield call, call.args[:1], None


def _likeness(index: SourceIndex, node: ast.expr, class_name: str, depth: int = 2) -> int:
    """Return how likely the value of an expression is a module of this class: 2 if it is, 1 if it may be, 0 if not."""
    if isinstance(node, ast.Call):
        return 2 if last_name(node.func) == class_name else int(not _is_class(index, node.func))
    if isinstance(node, ast.Name) and depth:
        writes = index.writes_by_reference.get(index.reference(node), ())
        assigned = [write.value for write in writes if write.how == "assign"]
        values = [value for value in assigned if isinstance(value, ast.expr)]
        return max((_likeness(index, value, class_name, depth - 1) for value in values), default=1)
    return int(isinstance(node, (ast.Name, ast.Attribute, ast.Subscript, ast.IfExp, ast.Starred)))


def _is_class(index: SourceIndex, func: ast.expr) -> bool:
    """Return whether an expression names a class: an imported one, or one of this file."""
    if not last_name(func)[:1].isupper():
        return False
    bound = index.holder(func).bound.get(func.id, ()) if isinstance(func, ast.Name) else ()
    return index.is_imported(func) or any(isinstance(one, ast.ClassDef) for one in bound)


def _holders(index: SourceIndex, node: ast.expr) -> tuple[set[Reference], bool]:
    """Return the attributes that may hold what a repetition fills, also by way of variables.

    :returns: the attributes, and whether a container is made that another attribute may hold: a function returns it, or
        takes it.
    """
    attributes, is_contained, is_direct = set[Reference](), False, False
    left, seen = list[ast.AST]((node,)), set[Reference]()
    for _ in range(MAX_ASSIGNMENTS):
        following = list[ast.AST]()
        for one in left:
            calls = _calls_around(index, one)
            if calls is None:
                continue
            is_contained = is_contained or not CONTAINERS.isdisjoint(calls)
            for target in _targets(index, one):
                reference = index.reference(target)
                if reference is None or reference in seen:
                    continue
                seen.add(reference)
                if reference.is_attribute:
                    attributes.add(reference)
                    is_direct = is_direct or CONTAINERS.union(PASSING).issuperset(calls)
                else:
                    following += _reads(index, reference, node)
        left = following
    return attributes, is_contained and not is_direct


def _calls_around(index: SourceIndex, node: ast.AST) -> list[str] | None:
    """Return the names of the calls that get an expression as an argument; ``None`` if a comprehension goes over it."""
    names, inner = list[str](), node
    for around in index.around(node):
        if isinstance(around, ast.comprehension):
            return None
        if isinstance(around, ast.Call) and inner is not around.func:
            names.append(last_name(around.func))
        inner = around
    return names


def _targets(index: SourceIndex, node: ast.AST) -> list[ast.AST]:
    """Return what the statement around an expression assigns to, or adds to."""
    for around in (node, *index.around(node)):
        if isinstance(around, ast.Assign):
            return [container(one) or one for one in around.targets]
        if isinstance(around, (ast.AnnAssign, ast.AugAssign, ast.NamedExpr)):
            return [container(around.target) or around.target]
        if isinstance(around, ast.Call) and last_name(around.func) in EXTENDERS:
            return [around.func.value] if isinstance(around.func, ast.Attribute) else []
    return []


def _reads(index: SourceIndex, reference: Reference, after: ast.AST) -> list[ast.AST]:
    """Return the nodes that read a variable after the line of a node, in the same function."""
    function = index.scopes[after].function
    return [
        one
        for one in index.inside(function)
        if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Load) and one.lineno >= after.lineno  # type: ignore[attr-defined]
        if index.reference(one) == reference
    ]


def _is_meant(index: SourceIndex, node: ast.AST) -> bool:
    """Return whether the source near a repetition says that sharing is meant, or chooses between it and modules."""
    around = list(index.around(node))
    if any(_has_other_choice(index, one, node) for one in around):
        return True
    statement = next((one for one in (node, *around) if isinstance(one, ast.stmt)), node)
    first, last = statement.lineno, statement.end_lineno or statement.lineno  # type: ignore[attr-defined]
    above = [line for line in index.lines[max(first - 1 - MAX_COMMENT_LINES, 0) : first - 1] if "#" in line]
    texts = [*above, *index.lines[first - 1 : last]]
    texts += [text_of(one.test) for one in around if isinstance(one, ast.If)]
    scope = index.scopes[node]
    while scope.parent is not None:
        texts.append(scope.name)
        if isinstance(scope.node, (*FUNCTIONS, ast.ClassDef)):
            texts.append(ast.get_docstring(scope.node) or "")
        scope = scope.parent
    return any(MEANT.search(text) for text in texts)


def _has_other_choice(index: SourceIndex, condition: ast.AST, node: ast.AST) -> bool:
    """Return whether a condition chooses between a repetition and another value for the same variable or attribute."""
    if isinstance(condition, ast.IfExp):
        return not index.contains(condition.test, node)
    if not isinstance(condition, ast.If):
        return False
    targets = {index.reference(target) for target in _targets(index, node)}
    own = condition.body if any(index.contains(one, node) for one in condition.body) else condition.orelse
    other = condition.orelse if own is condition.body else condition.body
    repeating = [one for one, _, _ in _repeating(index)]
    return any(
        index.reference(write.target) in targets and not any(index.contains(statement, one) for one in repeating)
        for statement in other
        for write in index.writes_in(statement)
    )
