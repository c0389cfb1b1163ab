"""Calls in the user's code, and the functions of the user's that they run."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator
from typing import NamedTuple

from ..records import Site
from .candidates import Candidate, Reason, likeliest, ranked
from .frames import Frames
from .index import FUNCTIONS, Reference, Scope, SourceIndex, arguments_of, indexes, last_name

#: Maximum number of expressions that are followed to the classes of a value, or to a dtype.
MAX_VALUES = 40
#: Keywords of constructors that give the dtype of parameters, and the function that sets the dtype of those without.
_DTYPE_KEYWORDS, _SETS_DTYPE = ("dtype", "torch_dtype"), "set_default_dtype"
#: A function or class of the user's, with the index of its file.
Function = tuple[SourceIndex, Scope]


class MethodCall(NamedTuple):
    """A call ``x.method(...)``: its first and last line, and the name of the first argument."""

    site: Site
    first: int
    last: int
    argument: str


def calls_of_method(frames: Frames, method: str) -> list[MethodCall]:
    """Return all calls ``x.method(...)`` in the user's code, whatever ``x`` is."""
    found = []
    for index in indexes(frames.users_files(), method):
        for call in index.of(ast.Call):
            if isinstance(call.func, ast.Attribute) and call.func.attr == method:
                argument = last_name(call.args[0]) if call.args else ""
                found.append(MethodCall(index.site(call), call.lineno, call.end_lineno or call.lineno, argument))
    return found


def constructions(frames: Frames, class_name: str) -> list[Site]:
    """Return the calls of the user's code that make an instance of a class, also under another name of an import."""
    found = []
    for index in indexes(frames.users_files(), class_name):
        imported = [one for node in index.of(ast.ImportFrom) for one in node.names if one.name == class_name]
        names = {class_name, *(one.asname for one in imported if one.asname)}
        found += [index.site(call) for call in index.of(ast.Call) if last_name(call.func) in names]
    return found


def names_given_to(frames: Frames, keywords: Collection[str]) -> list[str]:
    """Return the names of variables and attributes that the user's code passes as one of the arguments `keywords`.

    Keys of a dictionary count as keywords: such a dictionary is often unpacked in a call.
    """
    found: list[str] = []
    for index in indexes(frames.users_files(), *keywords):
        found += [
            last_name(word.value) for call in index.of(ast.Call) for word in call.keywords if word.arg in keywords
        ]
        for one in index.of(ast.Dict):
            pairs = zip(one.keys, one.values, strict=True)
            found += [last_name(value) for key, value in pairs if getattr(key, "value", None) in keywords]
    return [name for name in dict.fromkeys(found) if name]


def lines_giving(frames: Frames, keywords: Collection[str]) -> list[Site]:
    """Return the lines of the user's code that give a call one of the arguments `keywords`, or have it as a key of a
    dictionary.
    """
    found: list[Site] = []
    for index in indexes(frames.users_files(), *keywords):
        words = [word for call in index.of(ast.Call) for word in call.keywords if word.arg in keywords]
        keys = [key for one in index.of(ast.Dict) for key in one.keys if getattr(key, "value", None) in keywords]
        found += [index.site(node) for node in (*(word.value for word in words), *keys) if node is not None]
    return list(dict.fromkeys(found))


def module_casts(frames: Frames, dtypes: Collection[str]) -> list[Site]:
    """Return the statements of the user's code that cast a module to one of `dtypes`, as in ``model.half()``.

    A cast in the middle of an expression is taken for one of a tensor.

    :param dtypes: names of dtypes in ``torch``, or of methods that cast to one.
    """
    found = []
    for index in indexes(frames.users_files()):
        for call in index.of(ast.Call):
            parent = index.parents.get(call)
            if not isinstance(call.func, ast.Attribute) or not isinstance(parent, (ast.Assign, ast.Expr, ast.Return)):
                continue
            casts = call.func.attr in dtypes or (
                call.func.attr in ("to", "type") and any(_may_be(index, one, dtypes) for one in arguments_of(call))
            )
            if casts and isinstance(call.func.value, (ast.Name, ast.Attribute, ast.Call)):
                found.append(index.site(call))
    return found


def constructions_in(frames: Frames, dtypes: Collection[str]) -> list[Site]:
    """Return the calls of the user's code that make modules in one of `dtypes`, or make it the default.

    Such a call is of a class, by its capital letter, or of a method of one, as in ``Model.from_pretrained``.

    :param dtypes: names of dtypes in ``torch``.
    """
    found = []
    for index in indexes(frames.users_files(), *_DTYPE_KEYWORDS, _SETS_DTYPE):
        for call in index.of(ast.Call):
            words = {word.arg: word.value for word in call.keywords if word.arg in _DTYPE_KEYWORDS}
            owner = call.func.value if isinstance(call.func, ast.Attribute) else None
            makes = last_name(call.func)[:1].isupper() or last_name(owner)[:1].isupper()
            given = [*words.values()] if makes else [*arguments_of(call)] if last_name(call.func) == _SETS_DTYPE else []
            if any(_may_be(index, one, dtypes) for one in given):
                found.append(index.site(call))
    return found


def _may_be(index: SourceIndex, value: ast.AST, names: Collection[str]) -> bool:
    """Return whether a value may be what one of `names` means: by its own name, or by what is assigned to it.

    The default of a parameter counts, and what calls give to it; a string may be the name, too.
    """
    stack, seen = [value], set[ast.AST]()
    while stack and len(seen) < MAX_VALUES:
        node = stack.pop()
        if node in seen:
            continue
        seen.add(node)
        if last_name(node) in names or (isinstance(node, ast.Constant) and node.value in names):
            return True
        if isinstance(node, (ast.IfExp, ast.Subscript, ast.Dict, ast.Call)):
            stack += [one for one in ast.iter_child_nodes(node) if one in index.scopes]
        stack += _assigned(index, node)
        for one in _bound(index, node):
            if isinstance(one, ast.arg):
                stack += values_given_to(index, one)
    return False


def values_given_to(index: SourceIndex, parameter: ast.arg) -> list[ast.AST]:
    """Return the default of a parameter, and what calls of its function in the file give to it."""
    arguments, function = index.parents[parameter], index.scopes[parameter]
    assert isinstance(arguments, ast.arguments)
    ordered = [*arguments.posonlyargs, *arguments.args]
    defaults = dict(zip(reversed(ordered), reversed(arguments.defaults), strict=False))
    defaults |= {a: d for a, d in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True) if d is not None}
    given: list[ast.AST] = [defaults[parameter]] if parameter in defaults else []
    owner = function.owner
    name = owner.name if owner is not None and function.name == "__init__" else function.name
    place = ordered.index(parameter) - (owner is not None) if parameter in ordered else -1
    for call in index.of(ast.Call):
        if last_name(call.func) == name:
            given += [word.value for word in call.keywords if word.arg == parameter.arg]
            given += call.args[place : place + 1] if place >= 0 else []
    return given


def calls_with_values(frames: Frames, index: SourceIndex, parameter: ast.arg) -> list[tuple[Site, ast.AST]]:
    """Return the calls of a function in the user's code, each with what it gives to a parameter, or the default.

    Calls of another function of the same name count, too.
    """
    arguments, function = index.parents[parameter], index.scopes[parameter]
    assert isinstance(arguments, ast.arguments)
    ordered = [*arguments.posonlyargs, *arguments.args]
    defaults = dict(zip(reversed(ordered), reversed(arguments.defaults), strict=False))
    defaults |= {a: d for a, d in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True) if d is not None}
    place = function.parameters.index(parameter.arg) if parameter.arg in function.parameters else -1
    found = []
    for other in indexes(frames.users_files(), function.name):
        for call in other.of(ast.Call):
            if last_name(call.func) != function.name:
                continue
            given = [word.value for word in call.keywords if word.arg == parameter.arg]
            given += call.args[place : place + 1] if place >= 0 else []
            given += [defaults[parameter]] if parameter in defaults else []
            found += [(other.site(call), value) for value in given[:1]]
    return found


def checkpointing_lines(frames: Frames) -> list[Site]:
    """Return the calls of the user's code that turn activation checkpointing on in a library's model, or make it
    reentrant.
    """
    found = []
    for index in indexes(frames.users_files()):
        for call in index.of(ast.Call):
            named = {word.arg: word.value for word in call.keywords if word.arg}
            choices = [named.get("gradient_checkpointing"), named.get("use_reentrant")]
            is_on = any(isinstance(one, ast.Constant) and one.value is True for one in choices)
            if is_on or last_name(call.func) == "gradient_checkpointing_enable":
                found.append(index.site(call))
    return list(dict.fromkeys(found))


def functions_called(index: SourceIndex, call: ast.Call, files: list[str]) -> list[Function]:
    """Return the user's functions, methods and forwards of modules that `call` may run, each with the index of its
    file.

    If only the name speaks for them, return the first.

    :param files: the user's files.
    """
    found = ranked(_called(index, call, files))
    if found and found[0].reason in (Reason.NAME, Reason.PARAMETER):
        del found[1:]
    return likeliest(found)


def calls_of(index: SourceIndex, function: Scope, files: list[str]) -> list[tuple[SourceIndex, ast.Call]]:
    """Return the calls in the user's code that may run `function`, each with the index of its file.

    The forward of a module is called through the variables and attributes that hold an instance of its class.

    :param files: the user's files.
    """
    names, owner = {function.name}, function.owner
    if owner is not None and function.name == "__init__":
        names = {owner.name}
    elif owner is not None and function.name in ("forward", "__call__"):
        names |= {
            last_name(target)
            for where in indexes(files, owner.name)
            for target, value in where.values.items()
            if isinstance(value, ast.Call) and last_name(value.func) == owner.name
        }
    found = []
    for where in indexes(files, *names):
        for call in where.of(ast.Call):
            if last_name(call.func) in names:
                called = likeliest(_called(where, call, files))
                if (index, function) in called or not (called or _is_of_library(where, call.func, files)):
                    found.append((where, call))
    return found


def _is_of_library(index: SourceIndex, func: ast.expr, files: list[str]) -> bool:
    """Return whether a library alone made the object that is called: ``net = nn.Sequential(nn.ReLU())``."""
    values = _assigned(index, func)
    nodes = [one for value in values for one in index.walk(value)]
    names = [one for one in nodes if isinstance(one, ast.Name)]
    if not names or not all(map(index.is_imported, names)) or len(values) != len(_bound(index, func)):
        return False
    made = {last_name(one.func) for one in nodes if isinstance(one, ast.Call)}
    defined = (one for where in indexes(files, *made) for one in where.of(*FUNCTIONS, ast.ClassDef))
    return not any(one.name in made for one in defined)


def _called(index: SourceIndex, call: ast.Call, files: list[str]) -> Iterator[Candidate[Function]]:
    """Yield the user's functions that a call may run, each with the reason to think so."""
    func, name = call.func, last_name(call.func)
    if isinstance(func, ast.Name):
        bound = index.holder(func).bound.get(name, [])
        for node in bound:
            yield from (Candidate(one, Reason.VARIABLE) for one in _functions_bound(index, node, files))
        imports = [node.name for node in bound if isinstance(node, ast.alias)]
        if imports or not any(isinstance(node, (*FUNCTIONS, ast.ClassDef, ast.Name)) for node in bound):
            reason = Reason.PARAMETER if bound and not imports else Reason.NAME
            yield from (Candidate(one, reason) for one in _named((*imports, name)[0], files, is_method=False))
    elif isinstance(func, ast.Attribute):
        own, cls = index.class_of(func.value), index.scopes[func].function.owner
        if own is not None:
            yield from (Candidate(one, Reason.CLASS_ATTRIBUTE) for one in _members(index, own, name, files))
        elif isinstance(func.value, ast.Call) and last_name(func.value.func) == "super" and cls is not None:
            yield from (Candidate(one, Reason.CLASS_ATTRIBUTE) for one in _members(index, cls, name, files, True))
        elif classes := [one for one in _bound(index, func.value) if isinstance(one, ast.ClassDef)]:
            method = "forward" if name == "apply" else name  # of a function of autograd
            for cls in map(index.opened.__getitem__, classes):
                yield from (Candidate(one, Reason.VARIABLE) for one in _members(index, cls, method, files))
        else:
            for where, made in _classes_of(index, func.value, files):
                yield from (Candidate(one, Reason.OWNER_NAMED) for one in _members(where, made, name, files))
            is_method = not index.is_imported(func.value)
            yield from (Candidate(one, Reason.NAME) for one in _named(name, files, is_method))
    else:
        yield from (Candidate(one, Reason.CLASS_ATTRIBUTE) for one in _forwards(index, func, files))


def _functions_bound(index: SourceIndex, node: ast.AST, files: list[str]) -> Iterator[Function]:
    """Yield the functions that a call of a variable runs, if `node` is what binds the variable."""
    value = index.values.get(node)
    if isinstance(node, FUNCTIONS):
        yield index, index.opened[node]
    elif isinstance(node, ast.ClassDef):
        yield from _methods(index, index.opened[node], "__init__")
        yield from _data_methods(index, index.opened[node])
    elif isinstance(value, ast.Lambda):
        yield index, index.opened[value]
    elif value is not None:
        yield from _forwards(index, value, files)


def _classes_of(index: SourceIndex, value: ast.AST, files: list[str]) -> list[Function]:
    """Return the classes of the instances that `value` may be made of: ``Net()``, or the items of ``self.blocks``."""
    found: list[Function] = []
    stack, seen = [value], set[ast.AST]()
    while stack and len(seen) < MAX_VALUES:
        node = stack.pop()
        seen.add(node)
        func = node.func if isinstance(node, ast.Call) else None
        own = [one for one in _bound(index, func) if isinstance(one, ast.ClassDef)]
        classes = [(index, index.opened[one]) for one in own] or _classes(last_name(func), files)
        found += classes
        more = () if classes else (*_assigned(index, node), *ast.iter_child_nodes(node))
        stack += [one for one in more if one in index.scopes and one not in seen]
    return found


def _bound(index: SourceIndex, node: ast.AST | None) -> list[ast.AST]:
    """Return the nodes that bind a variable, such as assignments and definitions; empty for other expressions."""
    return index.holder(node).bound.get(node.id, []) if isinstance(node, ast.Name) else []


def _assigned(index: SourceIndex, node: ast.AST) -> list[ast.AST]:
    """Return the values that are assigned to a variable, or to an attribute of ``self``."""
    if isinstance(node, ast.Attribute):
        attribute = index.reference(node)
        owned = attribute is not None and attribute.owner is not None
        writes = index.writes_by_reference.get(attribute, ()) if owned else ()
        return [write.value for write in writes if write.how in ("assign", "loop") and write.value is not None]
    return [value for one in _bound(index, node) if (value := index.values.get(one)) is not None]


def _classes(name: str, files: list[str]) -> list[Function]:
    """Return the user's classes called `name`."""
    return [
        (index, index.opened[node])
        for index in (indexes(files, name) if name else ())
        for node in index.of(ast.ClassDef)
        if node.name == name
    ]


def _members(
    index: SourceIndex, cls: Scope, name: str, files: list[str], inherited: bool = False
) -> Iterator[Function]:
    """Yield the methods that ``object.name()`` runs for an object of `cls`, or the forward of its attribute of that
    name.

    :param inherited: only those of base classes, as for ``super().name()``.
    """
    left, seen = [(index, cls)], set[Scope]()
    while left:
        where, owner = left.pop(0)
        if owner in seen:
            continue
        seen.add(owner)
        own = list(_methods(where, owner, name))
        for write in where.writes_by_reference.get(Reference(name, True, owner), ()):
            if write.how == "assign" and isinstance(write.target, ast.Attribute) and write.value is not None:
                own += _forwards(where, write.value, files)
        if own and not (inherited and owner is cls):
            yield from own
            return
        for base in getattr(owner.node, "bases", ()):
            left += _classes(last_name(base), files)


def _methods(index: SourceIndex, cls: Scope, *names: str) -> Iterator[Function]:
    """Return the methods of a class with one of `names`, defined in the class itself."""
    nodes = (node for name in names for node in cls.bound.get(name, ()))
    return ((index, index.opened[node]) for node in nodes if isinstance(node, FUNCTIONS))


def _forwards(index: SourceIndex, value: ast.AST, files: list[str]) -> Iterator[Function]:
    """Yield the forwards of the modules that `value` may be made of."""
    for where, cls in _classes_of(index, value, files):
        yield from _methods(where, cls, "forward", "__call__")


def _data_methods(index: SourceIndex, cls: Scope) -> list[Function]:
    """Return the method of a class that gives the data of a dataset, ``__getitem__`` or else ``__iter__``; empty if
    none.
    """
    return [*_methods(index, cls, "__getitem__", "__iter__")][:1]


def _named(name: str, files: list[str], is_method: bool) -> Iterator[Function]:
    """Yield the user's functions called `name`, or its methods if `is_method`, and the data methods of classes called
    so.
    """
    for index in indexes(files, name):
        for node in index.of(*FUNCTIONS, ast.ClassDef):
            if node.name != name:
                continue
            scope = index.opened[node]
            if isinstance(node, ast.ClassDef):
                yield from _data_methods(index, scope)
            elif (scope.owner is not None) is is_method:
                yield index, scope
