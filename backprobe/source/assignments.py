"""Source lines that assign to, or mutate, a variable, attribute or container."""

from __future__ import annotations

import ast
from collections.abc import Callable, Collection, Iterator
from types import CodeType
from typing import Any

from ..records import Site
from .calls import calls_with_values, functions_called
from .candidates import Candidate, Reason, best, likeliest
from .frames import Frames
from .index import Reference, Scope, SourceIndex, arguments_of, container, index_of, indexes, last_name, spans
from .writes import CHANGERS, Write


def key_given(frames: Frames, key: str) -> Site | None:
    """Return the first line of the user's code that assigns to the constant subscript `key`: ``group["lr"] *= 0.5``."""
    sites = (
        index.site(write.node)
        for index in indexes(frames.users_files(), key)
        for write in index.writes
        if write.how in ("assign", "augment") and key in _keys(write.target)
    )
    return next(sites, None)


def scheduler_stepped(frames: Frames) -> Site | None:
    """Return the likeliest line of the user's code that calls ``step`` of a learning rate scheduler;
    ``None`` if none.
    """
    files = frames.users_files()
    read = list(indexes(files, "step", "LR", "Scheduler", "OnPlateau", "WarmRestarts", "lr_scheduler"))
    made = {
        index.reference(write.target)
        for index in read
        for write in index.writes
        if write.how == "assign" and isinstance(write.value, ast.Call) and _schedules(index, write.value.func)
    }
    names = {one.name for one in made if one is not None}
    found = []
    for index in read:
        for call in index.of(ast.Call):
            if not isinstance(call.func, ast.Attribute) or call.func.attr != "step":
                continue
            stepped = index.reference(call.func.value)
            if stepped is None or stepped.name not in names:
                continue
            if stepped in made:
                found.append(Candidate(index.site(call), Reason.VARIABLE))
            elif stepped.is_attribute or _is_parameter(stepped):
                found.append(Candidate(index.site(call), Reason.PARAMETER))
            elif any(functions_called(index, one, files) for one in _calls_assigned(index, stepped)):
                found.append(Candidate(index.site(call), Reason.NAME))  # a function of the user's made it
    return best(found)


def scheduler_made(frames: Frames, class_name: str = "") -> Site | None:
    """Return the line of the user's code that makes a learning rate scheduler; ``None`` unless there is exactly one.

    :param class_name: the class of the scheduler; if no line names it, any class or function that makes one counts.
    """
    files = frames.users_files()
    found: dict[bool, set[Site]] = {True: set(), False: set()}
    for index in indexes(files, "LR", "Scheduler", "OnPlateau", "WarmRestarts", "lr_scheduler", "schedule"):
        for call in index.of(ast.Call):
            name = last_name(call.func)
            if name == class_name or _schedules(index, call.func) or _prepares_schedule(name):
                found[name == class_name].add(index.site(call))
    likely = found[True] or found[False]
    return likely.pop() if len(likely) == 1 else None


def _prepares_schedule(name: str) -> bool:
    """Return whether a function is called like those of libraries: ``get_cosine_schedule_with_warmup``."""
    return name.startswith("get_") and "schedule" in name


def _calls_assigned(index: SourceIndex, variable: Reference) -> list[ast.Call]:
    """Return the calls whose results are assigned to a variable or attribute."""
    writes = index.writes_by_reference.get(variable, ())
    return [write.value for write in writes if write.how == "assign" and isinstance(write.value, ast.Call)]


def _schedules(index: SourceIndex, func: ast.AST) -> bool:
    """Return whether a call of `func` makes a scheduler, judged by its name or the module ``lr_scheduler``."""
    names = (last_name(one) for one in index.walk(func))
    return last_name(func).endswith(("LR", "Scheduler", "OnPlateau", "WarmRestarts")) or "lr_scheduler" in names


def used_before(site: Site, name: str) -> Site | None:
    """Return the last line before `site`, in its function, that reads the variable `name`."""
    index = index_of(site.file)
    function = index.function_at(site.line, site.function)
    variable = function.holder(name)
    nodes = [
        node
        for node in index.inside(function)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.lineno < site.line
        if node.id == name and index.holder(node) is variable
    ]
    return index.site(max(nodes, key=lambda one: one.lineno)) if nodes else None


def last_assigned(site: Site, name: str, from_itself: bool = False) -> Site | None:
    """Return the last line in the function of `site` that assigns more than numbers to its variable `name`.

    :param from_itself: the statement reads the variable, too: ``out, state = model(x, state)``.
    """
    index = index_of(site.file)
    function = index.function_at(site.line, site.function)
    variable = function.holder(name)
    found = [
        write.node
        for write in index.writes_in(function.node)
        if write.how == "assign" and write.value is not None and not _is_bare(write.value)
        if index.reference(write.target) == Reference(name, False, variable)
        if not from_itself or (variable, name) in index.variables([write.value], ast.Load)
    ]
    return index.site(found[-1]) if found else None


def reads_attribute(site: Site, name: str) -> bool:
    """Return whether the line `site` reads an attribute `name`."""
    nodes = index_of(site.file).by_line.get(site.line, ())
    return any(isinstance(one, ast.Attribute) and one.attr == name and isinstance(one.ctx, ast.Load) for one in nodes)


def container_fill_near(site: Site) -> Site | None:
    """Return the first line in the function of `site` that adds to a container which the statement at `site` reads.

    A condition around the statement may read the container too: ``cache[i] = k`` beside ``if i in cache: k =
    torch.cat([cache[i], k])``. ``None`` if there is no such line.
    """
    index = index_of(site.file)
    function = index.function_at(site.line, site.function)
    read: set[Reference | None] = set()
    for node in index.inside(function):
        if not spans(node, site.line):
            continue
        if isinstance(node, (ast.If, ast.IfExp, ast.While)):
            read |= _containers(index, node.test)
        elif isinstance(node, ast.stmt) and not hasattr(node, "body"):
            read |= _containers(index, getattr(node, "value", None) or node)
    fills = (
        write
        for write in index.writes_in(function.node)
        if write.how == "add" or (write.how == "assign" and isinstance(write.target, ast.Subscript))
        if index.scopes[write.node].function is function and index.reference(write.target) in read - {None}
    )
    first = min(fills, key=lambda one: one.line, default=None)
    return index.site(first.node) if first is not None else None


def _containers(index: SourceIndex, node: ast.AST) -> set[Reference | None]:
    """Return the containers that `node` reads: ``x[...]``, ``... in x``, ``len(x)``, ``x.get(...)``."""
    found: list[ast.AST] = []
    for one in index.walk(node):
        if isinstance(one, ast.Subscript):
            if getattr(index.parents[one], "attr", "") not in CHANGERS:
                found.append(one.value)
        elif isinstance(one, ast.Compare) and any(isinstance(o, (ast.In, ast.NotIn)) for o in one.ops):
            found += one.comparators
        elif isinstance(one, ast.Call) and isinstance(one.func, ast.Attribute) and one.func.attr in ("get", "pop"):
            found.append(one.func.value)
        elif isinstance(one, ast.Call) and getattr(one.func, "id", "") == "len":
            found += one.args[:1]
    return {index.reference(one) for one in found}


def changes_of(frames: Frames, name: str, key: str = "", graphs: bool = False, code: object = None) -> Site | None:
    """Return the likeliest line of the user's code that writes into a container called `name`.

    :param key: prefer a line that writes to the container under this key.
    :param graphs: prefer a line that adds more than numbers.
    :param code: the code of the function of which `name` is a variable; it may be an attribute if this is omitted.
    """
    found = []
    for index in indexes(frames.users_files(), name):
        changes = [write for write in index.writes if _is_change(write)]
        keyed = {w.line for w in changes if key in (*_keys(w.target), last_name(container(w.target)))}
        holder = _holder(index, name, code)
        for write in changes:
            reason = _reason(index, index.reference(write.target), name, holder)
            if reason is None and name in _keys(write.target):  # the list under "loss" holds it
                reason = Reason.NAME
            if reason is not None:
                wishes = 2 * (bool(key) and write.line in keyed) + (graphs and not _is_bare(write.value))
                found.append(Candidate(index.site(write.node), reason, wishes))
    return best(found)


def _is_change(write: Write) -> bool:
    """Return whether a write changes an object: ``x.append(...)``, ``x[...] = ...``, ``x += ...``, ``out=x``."""
    return write.how in ("add", "array", "out", "augment") or (
        write.how == "assign" and isinstance(write.target, ast.Subscript)
    )


def _keys(target: ast.AST) -> Iterator[str]:
    """Yield the constant keys of an element: ``"a"`` and ``"b"`` for ``x["a"]["b"]``."""
    while isinstance(target, ast.Subscript):
        if isinstance(target.slice, ast.Constant) and isinstance(target.slice.value, str):
            yield target.slice.value
        target = target.value


def _holder(index: SourceIndex, name: str, code: Any) -> Scope | None:
    """Return the scope that owns the variable `name` in the function with this code; ``None`` if the file does not have
    it.
    """
    function = index.function_of(code) if code is not None and code.co_filename == index.file else None
    return function.holder(name) if function is not None else None


def _reason(index: SourceIndex, found: Reference | None, name: str, holder: Scope | None) -> Reason | None:
    """Return why `found` may be the variable `name` of the scope `holder`; ``None`` if it cannot be.

    Without a holder, `name` may be an attribute or a variable of any scope.
    """
    if found is None or found.name != name:
        return None
    if found.is_attribute:
        return Reason.ATTRIBUTE
    if found.owner is holder:
        return Reason.VARIABLE
    if _is_parameter(found):
        return Reason.PARAMETER
    if holder is None or found.owner is None:
        return Reason.NAME
    # A variable of another function is another one, unless its value is returned.
    inside = index.inside(found.owner.function)
    returned = (one for node in inside if isinstance(node, (ast.Return, ast.Yield)) for one in index.walk(node))
    return Reason.NAME if any(isinstance(one, ast.Name) and one.id == name for one in returned) else None


def _is_parameter(found: Reference) -> bool:
    """Return whether a variable is a parameter of its function."""
    return found.owner is not None and any(isinstance(one, ast.arg) for one in found.owner.bound.get(found.name, ()))


def writes_to(frames: Frames, path: str) -> list[Site]:
    """Return the user's lines, outside of ``__init__``, that write in place to the tensor at `path` in a model.

    If some lines name the owner of the tensor too (``x.codebook.weight[i] = ...``), only these are returned; otherwise
    those with its last name alone.
    """
    last, found = path.rpartition(".")[2], []
    for index in indexes(frames.users_files(), last):
        for write in index.writes:
            target: ast.AST | None = write.target
            if write.how not in ("in-place", "augment") and not (
                write.how == "assign" and isinstance(target, ast.Subscript)
            ):
                continue
            while isinstance(target, ast.Subscript) or (isinstance(target, ast.Attribute) and target.attr == "data"):
                target = target.value
            if not isinstance(target, ast.Attribute) or target.attr != last:
                continue
            site, owner = index.site(write.node), last_name(target.value)
            if site.function != "__init__":
                named = owner and f".{path}".endswith(f".{owner}.{last}")
                found.append(Candidate(site, Reason.OWNER_NAMED if named else Reason.ATTRIBUTE))
    return likeliest(found)


def assigned_in(frames: Frames, name: str, code: CodeType | None = None) -> Site | None:
    """Return the first line, outside of ``__init__``, that assigns more than numbers to an attribute `name`.

    :param code: if given, `name` is a variable of the function with this code instead.
    """
    for index in indexes(frames.users_files() if code is None else (code.co_filename,), name):
        holder = _holder(index, name, code)
        for write, target in _assigned(index):
            if target.name == name and target.is_attribute is (code is None) and not _is_bare(write.value):
                site = index.site(write.node)
                if target.owner is holder if code is not None else site.function != "__init__":
                    return site
    return None


def argument_assigned(site: Site, functions: Collection[str]) -> Site | None:
    """Return the line that assigns the variable or attribute which a call at `site` gets as its first argument.

    :param functions: the names that the called function may have.
    :returns: ``None`` if no line or several lines assign it, or if it is no variable or attribute.
    """
    index = index_of(site.file)
    for call in index.of(ast.Call):
        if last_name(call.func) in functions and spans(call, site.line) and call.args:
            writes = index.writes_by_reference.get(index.reference(call.args[0]), [])
            nodes = [write.node for write in writes if write.how == "assign"]
            plain = isinstance(call.args[0], (ast.Name, ast.Attribute))
            return index.site(nodes[0]) if plain and len(nodes) == 1 else None
    return None


def _assigned(index: SourceIndex) -> Iterator[tuple[Write, Reference]]:
    """Yield assignments to variables and attributes, and to their elements, with the variable or attribute."""
    for write in index.writes:
        target = index.reference(write.target) if write.how in ("assign", "augment") else None
        if target is not None:
            yield write, target


def requires_grad_values(index: SourceIndex) -> Iterator[tuple[ast.AST, ast.AST | None]]:
    """Yield the nodes of a file that set ``requires_grad``, each with the value; ``None`` for a call without an
    argument.
    """
    for call in index.of(ast.Call):
        if last_name(call.func) == "requires_grad_":
            yield call, next(iter(arguments_of(call)), None)
    for write in index.writes:
        if isinstance(write.target, ast.Attribute) and write.target.attr == "requires_grad":
            yield write.node, write.value


def is_true(value: ast.AST | None) -> bool:
    """Return whether an expression is the constant True."""
    return isinstance(value, ast.Constant) and value.value is True


def is_false(value: ast.AST | None) -> bool:
    """Return whether an expression is the constant False."""
    return isinstance(value, ast.Constant) and value.value is False


def freezes(frames: Frames) -> list[Site]:
    """Return the lines of the user's code that turn ``requires_grad`` off."""
    return _requires_grad_lines(frames, is_false)


def thawing(frames: Frames) -> list[Site]:
    """Return the lines of the user's code that turn ``requires_grad`` of existing tensors on.

    If a function gets the value as a parameter, they are the lines that call it with this value.
    """
    found = _requires_grad_lines(frames, lambda value: value is None or is_true(value))
    for index in indexes(frames.users_files(), "requires_grad"):
        for _, value in requires_grad_values(index):
            inverted = isinstance(value, ast.UnaryOp) and isinstance(value.op, ast.Not)
            name = value.operand if inverted else value  # type: ignore[union-attr]
            bound = index.scopes[name].holder(name.id).bound.get(name.id, []) if isinstance(name, ast.Name) else []
            if len(bound) == 1 and isinstance(bound[0], ast.arg):
                calls = calls_with_values(frames, index, bound[0])
                found += [site for site, given in calls if (is_false if inverted else is_true)(given)]
    return list(dict.fromkeys(found))


def _requires_grad_lines(frames: Frames, sets: Callable[[ast.AST | None], bool]) -> list[Site]:
    """Return the lines of the user's code that set ``requires_grad`` to a value for which `sets` is true."""
    found = []
    for index in indexes(frames.users_files(), "requires_grad"):
        nodes = [node for node, value in requires_grad_values(index) if sets(value)]
        found += [index.site(node) for node in sorted(nodes, key=lambda one: one.lineno)]  # type: ignore[attr-defined]
    return found


def attribute_disabled(frames: Frames, name: str, owner: str) -> list[Site]:
    """Return the lines of the user's code that assign False to the attribute `name` of an object.

    If in some lines the object is called `owner`, only these are returned. Assignments to ``self`` are left out: the
    class may read its own attribute.
    """
    named, found = [], []
    for index in indexes(frames.users_files(), name):
        for write in index.writes:
            target = write.target
            if not isinstance(target, ast.Attribute) or target.attr != name:
                continue
            holder = last_name(target.value)
            if isinstance(write.value, ast.Constant) and write.value.value is False and holder != "self":
                found.append(index.site(write.node))
                if holder == owner:
                    named.append(found[-1])
    return named or found


def gives(site: Site, name: str, variable: bool = False) -> bool:
    """Return whether the statement at `site` assigns to an attribute `name`; if `variable`, to a variable
    of that name.
    """
    index = index_of(site.file)
    return any(
        target.name == name and target.is_attribute is not variable
        for write, target in _assigned(index)
        if spans(write.node, site.line)
    )


#: Calls that return numbers, or tensors without a graph.
_BARE = frozenset(
    (
        *("item", "detach", "tolist", "numpy", "float", "int", "len", "bool", "str", "list", "dict", "set", "deque"),
        *("defaultdict", "Counter", "zeros", "ones", "empty", "full", "rand", "randn", "zeros_like", "ones_like"),
        *("tensor", "new_zeros", "arange"),
    )
)


def _is_bare(value: ast.AST | None) -> bool:
    """Return whether the value of an expression has no graph, as far as the source shows: constants, ``x.item()`` and
    such.
    """
    if isinstance(value, (ast.List, ast.Tuple, ast.Set)):
        return all(_is_bare(one) for one in value.elts)
    if isinstance(value, ast.Call):
        return last_name(value.func) in _BARE
    return value is None or isinstance(value, (ast.Constant, ast.Dict, ast.UnaryOp))
