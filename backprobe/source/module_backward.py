"""Examines a method ``backward`` of a module: whether it computes a gradient, and what in the source may call it."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Collection, Iterator
from enum import Enum
from types import CodeType, FunctionType
from typing import Any, NamedTuple

from ..records import Site
from .frames import Frames
from .index import FUNCTIONS, Reference, Scope, SourceIndex, container, index_of, indexes, last_name, text_of

#: The name of the method.
METHOD = "backward"
#: Names of parameters that hold a gradient or the context of an autograd function, and words in the names that a method
#: uses, or in that of its class, that say so. Without any, the method may be the inverse of the forward, as in a flow.
_GRADIENT_PARAMETER = re.compile(
    r"grad|^ctx$|^context$|^g$|^g_|^dy$|^dout|^d_out|^delta|upstream|cotangent", re.IGNORECASE
)
_GRADIENT_WORD = re.compile(
    r"(?<!no_)(?<!auto)(?<!requires_)(?<!enable_)(?<!is_)(?<!set_)grad|ctx|upstream|cotangent", re.IGNORECASE
)
_GRADIENT_CLASS = re.compile(r"grad|revers|straight|^ste|ste$|grl", re.IGNORECASE)
#: A parameter that holds a loss: the method of a wrapper that starts the backward call.
_LOSS = re.compile("loss", re.IGNORECASE)
#: Functions that compute a gradient: a method that calls one of them is no formula of a gradient.
_STARTING_CALLS = frozenset({METHOD, "manual_backward", "grad", "vjp", "jvp", "register_hook"})


class Caller(Enum):
    """Whether the object ``x`` in a line with ``x.backward`` is an instance of a class."""

    #: Its object is an instance of the class.
    INSTANCE = 1
    #: Its object is not known.
    UNKNOWN = 2
    #: Its object is a tensor, or an object of a library.
    OTHER = 3


class PossibleCall(NamedTuple):
    """A line that may call a method ``backward`` of a module. ``function``: the innermost function around it."""

    site: Site
    caller: Caller
    function: Scope


def gradient_method(kind: type, frames: Frames) -> FunctionType | None:
    """Return the method ``backward`` of a class of modules if it computes a gradient, as an autograd function's does.

    It is a function of the user's, takes a gradient, starts no backward call itself, and overrides no method of a
    library, which would call it. ``None`` if there is no such method.
    """
    found = [base.__dict__[METHOD] for base in kind.__mro__ if METHOD in base.__dict__]
    functions = [inspect.unwrap(getattr(one, "__func__", one)) for one in found]
    # Not `is_user`, which would mark the function as one that was seen to run.
    own = [one for one in functions if isinstance(one, FunctionType) and frames.is_users_file(one.__code__.co_filename)]
    if not own or len(own) < len(functions):
        return None
    function = own[0]
    index, scope = source_of(function)
    if scope is None:
        return None
    names = [one.arg for one in _arguments(scope)]
    if not names or any(map(_LOSS.search, names)) or _starts_backward(index, scope) or _is_empty(scope.node):
        return None
    inside = index.walk(scope.node)
    is_turned = any(
        isinstance(getattr(one, "op", None), ast.USub) or last_name(one) in ("neg", "negative", "sub") for one in inside
    )
    is_reversal = _GRADIENT_CLASS.search(kind.__name__) is not None and is_turned
    if any(map(_GRADIENT_PARAMETER.search, names)) or any(_GRADIENT_WORD.search(last_name(one)) for one in inside):
        return function
    return function if is_reversal else None


def source_of(function: FunctionType) -> tuple[SourceIndex, Scope | None]:
    """Return the index of the file of a function, and its scope there; the scope is ``None`` if the source cannot be
    read.
    """
    index = index_of(function.__code__.co_filename, function.__globals__)
    return index, index.function_of(function.__code__)


def _arguments(scope: Scope) -> list[ast.arg]:
    """Return the parameters of a method without ``self``, including ``*args``."""
    arguments: ast.arguments = scope.node.args  # type: ignore[attr-defined]
    found = [*arguments.posonlyargs, *arguments.args]
    rest = [one for one in (arguments.vararg,) if one is not None]
    return [*(one for one in found if one.arg != scope.instance), *rest]


def _starts_backward(index: SourceIndex, scope: Scope) -> bool:
    """Return whether a method starts a backward call or asks for a gradient, so that it is no formula of one."""
    calls = (one for one in index.walk(scope.node) if isinstance(one, ast.Call))
    return any(last_name(one.func) in _STARTING_CALLS and not _is_super(one.func) for one in calls)


def _is_super(func: ast.AST) -> bool:
    """Return whether an expression is ``super().name``."""
    value = func.value if isinstance(func, ast.Attribute) else None
    return isinstance(value, ast.Call) and last_name(value.func) == "super"


def _is_empty(node: ast.AST) -> bool:
    """Return whether a function does nothing, or only raises."""
    body: list[ast.stmt] = node.body  # type: ignore[attr-defined]
    rest = [one for one in body if not (isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant))]
    return all(isinstance(one, (ast.Pass, ast.Raise)) for one in rest)


def possible_calls(frames: Frames, kind: type, function: FunctionType) -> Iterator[PossibleCall]:
    """Yield the lines of the user's code that may call the method ``backward`` of a class of modules, or pass it on.

    Lines whose object is known to be another one, such as a loss, are left out.
    """
    names = {one.__name__ for one in kind.__mro__ if frames.is_users_file(_file_of(one))} | {kind.__name__}
    signature = inspect.signature(function)
    for index in indexes(frames.users_files(), METHOD):
        for node in index.of(ast.Attribute):
            if node.attr != METHOD or not isinstance(node.ctx, ast.Load) or _is_super(node):
                continue
            call = index.parents.get(node)
            if isinstance(call, ast.Call) and call.func is node and not _fits(call, signature):
                continue
            caller = _caller(index, node.value, names)
            if caller is not Caller.OTHER:
                yield PossibleCall(index.site(node), caller, index.scopes[node].function)
        for node in index.of(ast.Constant):
            if node.value == METHOD:
                yield PossibleCall(index.site(node), Caller.UNKNOWN, index.scopes[node].function)


def _file_of(kind: type) -> str:
    """Return the file of a class, from its first method; a name that no file has if it has no method."""
    functions = (one for one in kind.__dict__.values() if isinstance(one, FunctionType))
    return next((one.__code__.co_filename for one in functions), "<unknown>")


def _fits(call: ast.Call, signature: inspect.Signature) -> bool:
    """Return whether a method can be called with the arguments of a call, and the first is not named after a loss."""
    if any(isinstance(one, ast.Starred) for one in call.args) or any(one.arg is None for one in call.keywords):
        return True
    if call.args and _LOSS.search(text_of(call.args[0])):
        return False
    named: dict[str, Any] = {one.arg: one.value for one in call.keywords if one.arg is not None}
    try:
        signature.bind(call, *call.args, **named)
    except TypeError:
        return False
    return True


def _caller(index: SourceIndex, value: ast.expr, names: Collection[str]) -> Caller:
    """Return whether the object of ``value.backward`` is an instance of the class, another object, or unknown.

    :param names: the names of the class and of its bases.
    """
    own = index.class_of(value)
    if own is not None:
        return Caller.INSTANCE if own.name in names else Caller.OTHER
    if last_name(value) in names:
        return Caller.INSTANCE
    if index.is_imported(value):
        return Caller.OTHER
    if isinstance(value, ast.Call):
        return Caller.INSTANCE if last_name(value.func) in names else _of_result(index, value)
    reference = index.reference(value)
    writes = index.writes_by_reference.get(reference, ()) if reference is not None else ()
    values = [write.value if write.how == "assign" else None for write in writes]
    if isinstance(container(value), (ast.Name, ast.Attribute)) and container(value) is not value:
        return Caller.UNKNOWN  # an element
    if any(isinstance(one, ast.Call) and last_name(one.func) in names for one in values):
        return Caller.INSTANCE
    if values and _is_bound_by(index, reference, values) and all(_is_of_others(index, one) for one in values):
        return Caller.OTHER
    return Caller.UNKNOWN


def _is_bound_by(index: SourceIndex, reference: Reference | None, values: list[ast.AST | None]) -> bool:
    """Return whether these assignments are all that binds a variable, which may also be a parameter or loop
    variable.
    """
    if reference is None or reference.is_attribute:
        return reference is not None and isinstance(reference.owner, Scope)
    holder = reference.owner
    return holder is not None and len(holder.bound.get(reference.name, ())) == len(values)


def _is_of_others(index: SourceIndex, value: ast.AST | None) -> bool:
    """Return whether an assigned value is the result of an operation, or an object of a library."""
    if isinstance(value, ast.Call):
        return _of_result(index, value) is Caller.OTHER
    return isinstance(value, (ast.BinOp, ast.UnaryOp, ast.Compare, ast.Constant))


def _of_result(index: SourceIndex, call: ast.Call) -> Caller:
    """Return what the result of a call is, if the call makes no instance: unknown for a function of the user's."""
    if isinstance(call.func, ast.Name):
        bound = index.holder(call.func).bound.get(call.func.id, ())
        if any(isinstance(one, FUNCTIONS) for one in bound):
            return Caller.UNKNOWN
    elif not isinstance(call.func, ast.Attribute):
        return Caller.UNKNOWN
    return Caller.OTHER


def is_encountered(frames: Frames, index_file: str, function: Scope) -> bool:
    """Return whether a function of a file was seen to run; code outside of functions has run."""
    if not isinstance(function.node, FUNCTIONS):
        return True
    codes: list[CodeType] = [one for one in frames.users_codes() if one.co_filename == index_file]
    return any(one.co_name == function.name and _is_code_of(index_of(index_file), one, function) for one in codes)


def _is_code_of(index: SourceIndex, code: CodeType, function: Scope) -> bool:
    """Return whether code is that of a function in the index."""
    return index.function_of(code) is function
