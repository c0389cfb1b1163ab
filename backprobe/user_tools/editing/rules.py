"""Rules (what to edit, and how) and chains (the rules of one place, in order, applied to a gradient)."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch

from ...basics.errors import BackprobeError, add_note
from ...basics.select import Choice, Selection, described
from . import actions
from .actions import Action
from .backwards import CallCounter
from .log import EditPlace, Log

#: A function from a gradient to a gradient, or to ``None``: leave it as it is.
Function = Callable[[torch.Tensor], "torch.Tensor | None"]


class Rule:
    """A selection and an action, as the user wrote them."""

    def __init__(self, number: int, select: Selection, action: Function) -> None:
        """Check selection and action.
        :raises BackprobeError: the action is no function, or a function that makes actions.
        """
        if not callable(action):
            raise BackprobeError(
                f"the action for {described(select)} is a {type(action).__name__}; give a function from a gradient "
                "to a gradient, such as backprobe.gradient_ops.zero or backprobe.gradient_ops.clamp(min=0)"
            )
        for maker, call in _MAKERS:
            if action is maker:
                raise BackprobeError(
                    f"the action for {described(select)} is {maker.__name__} itself; call it to make the action, as in "
                    f"backprobe.gradient_ops.{call}"
                )
        self.number, self.select, self.action = number, select, action
        self.text = name_of(action)
        #: Whether a thing of that name is meant; knows which parts of the selection have meant none.
        self.fits = Choice(select)
        self._functions: dict[str, Function] = {}

    def function(self, place: EditPlace) -> Function:
        """Return the function of the action at `place`: always the same, since it may have a state (a generator)."""
        if not isinstance(self.action, Action):
            return self.action
        key = place.name + place.path
        found = self._functions.get(key)
        if found is None:
            found = self._functions[key] = self.action.at(key)
        return found


#: The functions that make actions, taken for actions by mistake, and how they are called.
_MAKERS: tuple[tuple[Any, str], ...] = (
    (actions.clamp, "clamp(min=0)"),
    (actions.clip_norm, "clip_norm(1.0)"),
    (actions.clip_value, "clip_value(1.0)"),
    (actions.drop_nonfinite, "drop_nonfinite()"),
    (actions.noise, "noise(0.01)"),
    (actions.replace, "replace(0.0)"),
    (actions.reverse, "reverse()"),
    (actions.scale, "scale(0.5)"),
)


def rules_of(select: Any, action: object) -> list[Rule]:
    """Return the rules given by the arguments of ``edit_gradients``, in order.

    The arguments are a selection and an action, a mapping from selections to actions, or pairs; an action may be a list
    of actions.

    Raises:
        BackprobeError: if it is none of these.
    """
    pairs: Iterable[tuple[Any, Any]]
    if isinstance(select, Mapping):
        if action is not None:
            raise BackprobeError("give the actions in the mapping from names to actions, or as an argument, not both")
        pairs = select.items()
    elif action is not None:
        pairs = [(select, action)]
    elif isinstance(select, Sequence) and all(isinstance(p, tuple) and len(p) == 2 for p in select):
        pairs = select
    else:
        raise BackprobeError(
            f"no action for {described(select)}: write edit_gradients(model, '*.bias', gradient_ops.zero), or a "
            "mapping from names to actions: edit_gradients(model, {'*.bias': gradient_ops.zero})"
        )
    rules: list[Rule] = []
    for chosen, given in pairs:
        for one in given if isinstance(given, (list, tuple)) else [given]:
            rules.append(Rule(len(rules), chosen, one))
    if not rules:
        raise BackprobeError("no edit is given: the mapping from names to actions is empty")
    return rules


def name_of(action: object) -> str:
    """Return the name of a function for logs and errors; for a lambda, its file and line."""
    if isinstance(action, Action):
        return repr(action)
    name = getattr(action, "__name__", None) or type(action).__name__
    code = getattr(action, "__code__", None)
    if name == "<lambda>" and code is not None:
        return f"lambda at {os.path.basename(code.co_filename)}:{code.co_firstlineno}"
    return str(name)


class Chain:
    """The rules of one place, applied one after the other, with each result checked and noted."""

    def __init__(self, place: EditPlace, rules: Sequence[Rule], log: Log, calls: CallCounter) -> None:
        """Take the place, its rules in order, the log, and the counter of backward calls."""
        self.place, self.rules = place, list(rules)
        self._log, self._calls = log, calls
        #: A hook that is left on a copy of a module, or called after the edits were removed, does nothing.
        self.active = True

    def without(self, other: Chain) -> bool:
        """Remove the rules that `other` has too; return whether there were any."""
        there = {rule.number for rule in other.rules}
        before = len(self.rules)
        self.rules = [rule for rule in self.rules if rule.number not in there]
        return len(self.rules) < before

    def also(self, place: EditPlace) -> None:
        """Add the name of `place` to the names of this gradient."""
        if place.name != self.place.name and place.name not in self.place.also:
            self.place = dataclasses.replace(self.place, also=(*self.place.also, place.name))

    def __call__(self, grad: object) -> Any:
        """Return the edited gradient; ``None`` if there is none, or it is unchanged."""
        if grad is None or not self.active:
            return None
        backward = self._calls.number()
        result = grad
        for rule in self.rules:
            result = self._apply(rule, result, backward)
        return None if result is grad else result

    def _apply(self, rule: Rule, grad: torch.Tensor, backward: int) -> torch.Tensor | None:
        """Apply one rule, check and log its result, and return it.
        :raises BackprobeError: the action wrote into the gradient, or returned no tensor like it.
        """
        version = grad._version
        try:
            result = rule.function(self.place)(grad)
        except Exception as error:
            add_note(error, f"backprobe: in the edit {rule.text} on {self.place}, in backward call {backward}")
            raise
        if grad._version != version:
            raise self._refused(
                rule,
                backward,
                "wrote into the gradient that it was given. Others may hold the same memory, so their gradients are "
                "wrong now too. Return a new tensor: grad.clamp(min=0), not grad.clamp_(min=0)",
            )
        if result is None:
            result = grad
        elif not isinstance(result, torch.Tensor):
            raise self._refused(
                rule,
                backward,
                f"gave a {type(result).__name__}, not a tensor. Return a tensor like the gradient, or None",
            )
        else:
            wrong = [
                f"{what} {_value(new)} where the gradient has {_value(old)}"
                for what, old, new in (
                    ("shape", grad.shape, result.shape),
                    ("dtype", grad.dtype, result.dtype),
                    ("device", grad.device, result.device),
                    ("layout", grad.layout, result.layout),
                )
                if old != new
            ]
            if wrong:
                raise self._refused(
                    rule,
                    backward,
                    f"gave {', '.join(wrong)}. Return a tensor of the gradient's shape, dtype, device and layout",
                )
        self._log.add(rule.number, rule.text, self.place, backward, grad, result)
        return result

    def _refused(self, rule: Rule, backward: int, what: str) -> BackprobeError:
        """Return the error for a wrong result of a rule."""
        return BackprobeError(f"the edit {rule.text} on {self.place}, in backward call {backward}, {what}")


def _value(value: object) -> str:
    """Return a property of a tensor as text."""
    return str(tuple(value)) if isinstance(value, torch.Size) else str(value)
