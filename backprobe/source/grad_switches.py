"""Source lines that freeze parameters, or that turn gradient mode off."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from typing import Any

from ..records import Site
from .assignments import freezes, is_false, requires_grad_values
from .calls import calls_of, functions_called
from .candidates import Candidate, Reason, ranked
from .frames import Frames
from .index import FUNCTIONS, Reference, Scope, SourceIndex, arguments_of, index_of, indexes, last_name, spans, text_of

#: Methods of libraries that turn ``requires_grad`` of parameters off.
_FREEZING_METHODS = frozenset(
    {"toggle_optimizer", "set_adapter", "disable_adapters", "freeze", "freeze_feature_encoder", "freeze_base_model"}
)
#: Functions that turn gradient mode off, as a context manager, a decorator or a call.
_SWITCHES = frozenset({"no_grad", "inference_mode", "set_grad_enabled"})
#: Attributes and methods that take a value out of its graph.
_CUTS = frozenset({"detach", "item", "numpy", "data", "tolist", "argmax"})
#: Methods that train: of a loss, an accelerator or a module of Lightning, and of trainers and estimators.
_TRAINING_METHODS = frozenset({"backward", "manual_backward", "fit"})
#: Number of functions that are searched for such a call.
MAX_FUNCTIONS_CALLED = 50
#: Number of assignments that are followed from a variable to the code that gives its value.
MAX_ASSIGNMENTS_IN_A_ROW = 4


def freezing_lines(frames: Frames) -> list[Site]:
    """Return the lines of the user's code that turn ``requires_grad`` off, or may do so.

    A function that takes the value as an argument is represented by its calls: ``set_requires_grad(net, False)``.
    """
    found = dict.fromkeys(freezes(frames))
    files = frames.users_files()
    for index in indexes(files, "requires_grad"):
        for node, value in requires_grad_values(index):
            if isinstance(value, ast.Constant):
                continue
            function = index.scopes[node].function
            if isinstance(value, ast.Name) and value.id in _all_parameters(function):
                calls = calls_of(index, function, files)
                found |= {
                    where.site(call): None for where, call in calls if is_false(_argument(call, function, value.id))
                }
            else:
                found[index.site(node)] = None
    for index in indexes(files, *_FREEZING_METHODS):
        methods = (c for c in index.of(ast.Call) if isinstance(c.func, ast.Attribute))
        found |= {index.site(call): None for call in methods if call.func.attr in _FREEZING_METHODS}
    return list(found)


def freezes_always(site: Site) -> bool:
    """Return whether the line `site` turns ``requires_grad`` off with a constant, or calls a library that does so."""
    index = index_of(site.file)
    values = [value for node, value in requires_grad_values(index) if spans(node, site.line)]
    return not values or any(is_false(value) for value in values)


def is_in_evaluation(site: Site, files: list[str]) -> bool:
    """Return whether the function around `site` turns gradient mode off itself, in its body or by a decorator.

    A function of the user's `files` that also trains, itself or by functions that it calls, is no evaluation; nor is
    code outside of functions, which may do anything else, too.
    """
    index = index_of(site.file)
    function = index.function_at(site.line, site.function)
    if function is index.module:
        return False
    decorators = getattr(function.node, "decorator_list", [])
    inside = [one for one in index.inside(function) if isinstance(one, ast.Call)]
    calls = [one for one in (*decorators, *inside) if last_name(getattr(one, "func", one)) in _SWITCHES]
    is_off = any(not isinstance(one, ast.Call) or not _is_on(one) for one in calls)
    return is_off and not _trains(index, function, files)


def puts_mode_back(site: Site, files: list[str]) -> bool:
    """Return whether the function around `site` puts a model in evaluation mode and back in training mode.

    What else such a function changes is meant to last until its end: it looks at the model in between. Not if its name
    speaks of freezing, nor if it also trains.
    """
    index = index_of(site.file)
    function = index.function_at(site.line, site.function)
    if function is index.module or "freez" in function.name.lower():
        return False
    switched: dict[str, set[str]] = {"eval": set(), "train": set()}
    for call in index.inside(function):
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr in switched:
            is_eval = call.func.attr == "eval" or any(is_false(value) for value in arguments_of(call))
            switched["eval" if is_eval else "train"].add(text_of(call.func.value))
    return not switched["eval"].isdisjoint(switched["train"]) and not _trains(index, function, files)


def _trains(index: SourceIndex, function: Scope, files: list[str]) -> bool:
    """Return whether a function calls ``backward``, or ``fit`` of a library, itself or by functions that it calls."""
    seen: set[ast.AST] = set()
    waiting = [(index, function)]
    while waiting and len(seen) < MAX_FUNCTIONS_CALLED:
        where, scope = waiting.pop()
        if scope.node in seen:
            continue
        seen.add(scope.node)
        calls = [one for one in where.inside(scope) if isinstance(one, ast.Call)]
        if any(last_name(one.func) in _TRAINING_METHODS for one in calls):
            return True
        waiting += [found for call in calls for found in functions_called(where, call, files)]
    return False


def _all_parameters(function: Scope) -> list[str]:
    """Return the names of the parameters of a function, also those that are given by keyword only."""
    arguments = getattr(function.node, "args", None)
    keywords = [one.arg for one in arguments.kwonlyargs] if isinstance(arguments, ast.arguments) else []
    return [*function.parameters, *keywords]


def _argument(call: ast.Call, function: Scope, name: str) -> ast.AST | None:
    """Return what `call` passes as the parameter `name` of `function`: its default if it passes nothing."""
    given = next((one.value for one in call.keywords if one.arg == name), None)
    names = function.parameters
    at = names.index(name) if name in names else len(call.args)
    if given is None and at < len(call.args):
        given = call.args[at]
    if given is None:
        arguments: Any = function.node.args  # type: ignore[attr-defined]
        positional = [*arguments.posonlyargs, *arguments.args]
        defaults = dict(zip([one.arg for one in positional][::-1], arguments.defaults[::-1], strict=False))
        defaults |= {one.arg: value for one, value in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)}
        given = defaults.get(name)
    return given


def grad_mode_lines(frames: Frames, running: Iterable[Site]) -> list[Site]:
    """Return the lines of the user's code that may have left gradient mode off where it is off now, likeliest first.

    :param running: the lines of the functions that are running.
    """
    lines = [(one.file, one.line) for one in running]
    found = []
    for index, call, parent in _switches(frames):
        block: ast.AST = index.parents[parent] if isinstance(parent, ast.withitem) else parent
        site, around = index.site(call), any(f == index.file and spans(block, n) for f, n in lines)
        if isinstance(parent, ast.withitem):
            if around:
                found.append(Candidate(site, Reason.VARIABLE))
            elif any(isinstance(one, (ast.Yield, ast.YieldFrom)) for one in index.walk(block)):
                found.append(Candidate(site, Reason.ATTRIBUTE))
        elif isinstance(parent, FUNCTIONS):  # a decorator
            if around:
                found.append(Candidate(site, Reason.VARIABLE))
        elif last_name(call.func) == "set_grad_enabled":
            found.append(Candidate(site, Reason.CLASS_ATTRIBUTE))
    return [one.answer for one in ranked(found)]


def blocks_around_value(frames: Frames, site: Site) -> list[Site]:
    """Return the lines that turn gradient mode off around code that computes the variables which the line `site` reads.

    The code is an assignment in the same function, or a function that one calls. If an assignment takes a value out of
    its graph in another way, nothing is returned.
    """
    index, files = index_of(site.file), frames.users_files()
    function = index.function_at(site.line, site.function)
    names = index.variables(index.by_line.get(site.line, ()), ast.Load)
    writes = [one for one in index.writes_in(function.node) if one.how in ("assign", "augment") and one.value]
    sources: dict[ast.AST, ast.AST] = {}
    for _ in range(MAX_ASSIGNMENTS_IN_A_ROW):
        more = {one.node: one.value for one in writes if one.value and index.variables([one.node], ast.Store) & names}
        if more.keys() <= sources.keys():
            break
        sources |= more
        names |= index.variables(sources.values(), ast.Load)
    inside = [node for value in sources.values() for node in index.walk(value)]
    if any(last_name(node) in _CUTS for node in inside):
        return []
    calls = [node for node in inside if isinstance(node, ast.Call)]
    called = [one for call in calls for one in functions_called(index, call, files)]
    found: dict[Site, None] = {}
    for where, switch, parent in _switches(frames):
        block: ast.AST = where.parents[parent] if isinstance(parent, ast.withitem) else parent
        held = list(sources) if where is index else []
        if isinstance(parent, FUNCTIONS):
            hit = any(one is where and scope.node is parent for one, scope in called)
        elif isinstance(parent, ast.withitem):
            held += [one for other, scope in called if other is where for one in _given(where, scope)]
            hit = any(where.contains(block, one) for one in held)
        else:
            hit = False
        if hit:
            found[where.site(switch)] = None
    return list(found)


def _given(index: SourceIndex, function: Scope) -> list[ast.AST]:
    """Return the statements of a function that return a value, or that assign a variable which one returns."""
    exits = [one for one in index.exits(function) if isinstance(one, ast.Return)]
    names = index.variables(exits, ast.Load)
    writes = [one for one in index.writes_in(function.node) if one.how in ("assign", "add")]
    return [*exits, *(one.node for one in writes if index.reference(one.target) in _references(names))]


def _references(variables: Iterable[tuple[Scope, str]]) -> set[Reference]:
    """Return variables, given as scope and name, as references."""
    return {Reference(name, False, scope) for scope, name in variables}


def _switches(frames: Frames) -> Iterator[tuple[SourceIndex, ast.Call, ast.AST]]:
    """Yield the calls that turn gradient mode off, or may do so, each with its parent."""
    for index in indexes(frames.users_files(), *_SWITCHES):
        for call in index.of(ast.Call):
            if last_name(call.func) in _SWITCHES and not _is_on(call):
                yield index, call, index.parents[call]


def _is_on(call: ast.Call) -> bool:
    """Return whether a call turns gradient mode on, and never off."""
    if last_name(call.func) == "no_grad":
        return False
    value = next(iter(arguments_of(call)), None)
    on = last_name(call.func) == "set_grad_enabled"
    return isinstance(value, ast.Constant) and bool(value.value) is on
