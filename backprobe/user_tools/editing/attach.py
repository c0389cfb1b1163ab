"""``backprobe.edit_gradients``: put edits on gradients, take them off, and tell what they did."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any

import torch
from torch import nn

from ...basics.errors import BackprobeError
from ...basics.select import Selection, described
from ...basics.text import without_controls
from ...torch_internals import compiled_regions
from ...torch_internals.entry_points import node_of
from .backwards import CallCounter
from .log import Application, EditPlace, Log, Unused
from .modules import ModuleHooks
from .nodes import NodeHooks, Spans
from .parameters import ParameterHooks
from .rules import Chain, Function, Rule, rules_of
from .tensors import TensorHooks

_WHERE = ("parameter", "output", "input", "node")


class GradientEdit:
    """The edits that ``backprobe.edit_gradients`` has attached, and the log of what they did.

    Leave the ``with`` block or call ``remove()`` and every hook is gone; the log stays readable.
    """

    def __init__(self, rules: list[Rule], keep: int, measure: bool) -> None:
        """Prepare the log; no hook is registered yet.
        :param rules: the edits.
        :param keep: how many applications the log keeps.
        :param measure: whether norms are measured.
        """
        self._rules = rules
        self._log = Log(keep, measure)
        self._tensors = TensorHooks()
        self._parameters: ParameterHooks | None = None
        self._modules: ModuleHooks | None = None
        self._nodes = NodeHooks([], "out", None, self._tensors, self._log)
        self._named: list[tuple[str, list[Rule]]] = []
        self._calls = CallCounter(self._begun)
        self._nodes.calls = self._calls
        self._unused: list[Unused] | None = None
        #: By rule, backward calls through compiled code in which it did nothing.
        self._missed: Counter[int] = Counter()
        self._attached = False

    # Attaching

    def _begun(self, roots: list[object]) -> Callable[[], None] | None:
        """Prepare a backward call that is about to begin at `roots`: hook replaced parameters and nodes.
        :returns: a function to call when it is over; ``None`` if there is nothing to do then.
        """
        if self._parameters is not None:
            self._parameters.refresh()
        ended = self._nodes.hook(roots)
        starts = [node for node in map(node_of, roots) if node is not None]
        if self._parameters is None and not self._named and compiled_regions.reached(starts):
            return self._through_compiled(ended)
        return ended

    def _through_compiled(self, ended: Callable[[], None] | None) -> Callable[[], None]:
        """Note which edits have no effect in a backward call that runs compiled code."""
        before = self._applied()

        def over() -> None:
            """Finish the backward call, and count the rules that were not applied in it."""
            if ended is not None:
                ended()
            now = self._applied()
            self._missed.update(rule.number for rule in self._rules if now[rule.number] == before[rule.number])

        return over

    def _applied(self) -> Counter[int]:
        """Return the number of applications of each rule, by the rule's number."""
        found: Counter[int] = Counter()
        for (number, _, _), count in self._log.counts.items():
            found[number] += count
        return found

    def _attach(self, put: Callable[[], None]) -> GradientEdit:
        """Register the hooks by calling `put`, and start to count backward calls; undo all if that fails.

        Returns this object.
        """
        self._attached = True
        try:
            put()
            self._calls.start()
        except BaseException:
            self.remove()
            raise
        return self

    def _on_parameters(self, model: nn.Module, accumulated: bool) -> None:
        """Hook the parameters of `model` that the rules match."""
        self._parameters = ParameterHooks(model, self._rules, accumulated, self._log, self._calls)

    def _on_modules(self, model: nn.Module, where: str) -> None:
        """Hook the modules of `model` that the rules match, at their outputs or inputs."""
        self._modules = ModuleHooks(model, self._rules, where, self._tensors, self._log, self._calls)

    def _on_tensors(self, tensors: Mapping[str, object]) -> None:
        """Hook the tensors whose names the rules match.
        :raises BackprobeError: one of them does not require grad, or a rule matches none.
        """
        for name, tensor in tensors.items():
            fitting = [rule for rule in self._rules if rule.fits(name, tensor)]
            if not fitting:
                continue
            if not isinstance(tensor, torch.Tensor) or not tensor.requires_grad:
                what = "does not require a gradient" if isinstance(tensor, torch.Tensor) else "is not a tensor"
                raise BackprobeError(f"{name!r} {what}, so there is no gradient to edit")
            self._named.append((name, fitting))
            self._tensors.add(tensor, Chain(EditPlace("tensor", name), fitting, self._log, self._calls))
        for rule in self._rules:
            rule.fits.check(tensors, "tensor")

    def _on_nodes(self, subject: Any, side: str, module: Selection) -> None:
        """Hook the nodes that the rules match: those of existing graphs now, others when a backward call begins.
        :param subject: a model whose modules may be chosen, tensors with a graph, or ``None``.
        :raises BackprobeError: modules are chosen without a model, or a rule matches no node of the existing graphs.
        """
        spans = None
        if isinstance(subject, nn.Module):
            spans = Spans(subject, module)
        elif module is not None:
            raise BackprobeError(
                f"module={described(module)} chooses modules of a model; give edit_gradients() the model"
            )
        self._nodes = NodeHooks(self._rules, side, spans, self._tensors, self._log, self._calls)
        if subject is not None and spans is None:
            self._nodes.hook_for_good([subject] if isinstance(subject, torch.Tensor) else list(subject))
            names = sorted(self._nodes.names)
            for rule in self._rules:
                rule.fits.check(names, "node")

    def remove(self) -> None:
        """Take every hook off. Does nothing the second time; but if the first was inside a backward call, by an
        action, the second takes off what watches for backward calls, which does nothing any more."""
        if not self._attached:
            self._calls.stop()  # it could not go while its own backward call was running
            return
        self._attached = False
        self._unused = self._find_unused()
        self._calls.stop()
        for part in (self._nodes, self._modules, self._parameters, self._tensors):
            if part is not None:
                part.stop()

    def __enter__(self) -> GradientEdit:
        """Return this object; the edits are active already."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Remove the edits; without an error, warn of edits that were never applied."""
        self.remove()
        if error is None:
            done = {number for number, _, _ in self._log.counts}
            for rule in self._rules:
                if rule.number not in done:
                    reasons = [str(u) for u in self.unused if u.action == rule.text]
                    shown = "; ".join(reasons[:3]) or f"{rule.text} on {described(rule.select)}"
                    warnings.warn(f"an edit was never applied: {shown}", stacklevel=2)
                elif self._missed[rule.number]:
                    warnings.warn(f"an edit was left out: {self._left_out(rule)}", stacklevel=2)

    # What they did

    @property
    def entries(self) -> list[Application]:
        """The last applications, oldest first; ``keep`` bounds them. Reading a norm waits for the device."""
        return list(self._log.entries)

    @property
    def total(self) -> int:
        """Applications in all."""
        return self._log.total

    @property
    def counts(self) -> dict[str, int]:
        """Applications by place, as in ``"parameter 'fc.bias'"``."""
        found: dict[str, int] = {}
        for (_, where, name), count in self._log.counts.items():
            key = f"{where} {name!r}"
            found[key] = found.get(key, 0) + count
        return found

    @property
    def backwards(self) -> int:
        """Backward calls since the edit was made."""
        return self._calls.count

    @property
    def unused(self) -> list[Unused]:
        """Edits, and places of them, that were never applied, each with the reason that is known."""
        return self._find_unused() if self._unused is None else self._unused

    def _find_unused(self) -> list[Unused]:
        """Return the edits and places that were not applied so far, with reasons."""
        found = self._nodes.unused(self._calls.count)
        if self._parameters is not None:
            found += self._parameters.unused()
        if self._modules is not None:
            found += self._modules.unused()
        found += [self._left_out(rule) for rule in self._rules if self._missed[rule.number]]
        for name, rules in self._named:
            for rule in rules:
                if not self._log.has(rule.number, "tensor", name):
                    found.append(Unused(f"tensor {name!r}", rule.text, "no gradient came"))
        return found

    def _left_out(self, rule: Rule) -> Unused:
        """Return the entry for a rule that had no effect in calls through compiled code."""
        reason = "they ran code that torch.compile made, inside which nothing can be edited"
        return Unused(described(rule.select), rule.text, f"in {self._missed[rule.number]} backward calls: {reason}")

    def __str__(self) -> str:
        """Return the applications by place, and the edits that were never applied, as lines."""
        lines = [f"{self.total} edits in {self.backwards} backward calls"]
        lines += [f"  {place}: {count}" for place, count in self.counts.items()]
        lines += [f"  never applied: {unused}" for unused in self.unused]
        return without_controls("\n".join(lines), lines=True)


def edit_gradients(
    subject: nn.Module | Mapping[str, object] | torch.Tensor | Sequence[torch.Tensor] | None,
    select: object,
    action: Function | Sequence[Function] | None = None,
    *,
    where: str | None = None,
    side: str = "out",
    module: Selection = None,
    when: str = "each",
    measure: bool = True,
    keep: int = 1000,
) -> GradientEdit:
    """Edit gradients on their way through backward: ``with backprobe.edit_gradients(model, "*.bias", action):``.

    The edits are on when this returns, and until the block is left or ``remove()`` is called. Where several fit one
    place they are applied in the order of listing, and edits made earlier come before those made later.

    :param subject: what names are looked up in: a model; a mapping from names to tensors; one or several tensors whose
        graph is there already (for nodes); ``None`` for nodes of every backward call on this thread.
    :param select: which: a glob (``*`` crosses dots), a compiled regular expression, a function of name and thing, or a
        list of these. Or a mapping from such to actions, or a list of pairs.
    :param action: a function from gradient to gradient, as in ``backprobe.gradient_ops``, or a list of them. It gets a
        tensor that it must not write into, and gives one of the same shape, dtype, device and layout, or ``None``.
    :param where: ``"parameter"`` (a model's default), ``"output"``, ``"input"`` (of modules) or ``"node"``.
    :param side: for nodes: ``"out"`` edits the gradients that a node gives, ``"in"`` those that come into it.
    :param module: for nodes: only those that these modules of the model made.
    :param when: for parameters: ``"each"`` edits the gradient of each backward call before it is added to ``.grad``;
        ``"accumulated"`` edits ``.grad`` after each addition, and not what ``autograd.grad`` gives.
    :param measure: note norms before and after, and count the changed elements: some passes over the gradient.
    :param keep: applications that the log keeps.
    :raises BackprobeError: an argument is out of range, or nothing fits a selection. In backward: an action gives
        something that cannot take the gradient's place. What an action itself raises comes through, with a note.

    >>> import torch, backprobe as bp
    >>> model = torch.nn.Linear(3, 2)
    >>> with bp.edit_gradients(model, "bias", bp.gradient_ops.zero) as log:
    ...     model(torch.ones(4, 3)).sum().backward()
    >>> model.bias.grad, log.entries
    (tensor([0., 0.]), [backward 1: zero on parameter 'bias': norm 5.657 -> 0, 2 of 2 elements changed])
    """
    is_model, is_mapping = isinstance(subject, nn.Module), isinstance(subject, Mapping)
    if isinstance(subject, str):
        raise BackprobeError(
            f"edit_gradients({subject!r}, ...): names belong to a model: edit_gradients(model, {subject!r}, action)"
        )
    if where is None:
        where = "parameter" if is_model else "tensor" if is_mapping else "node"
    if where not in (*_WHERE, "tensor"):
        raise BackprobeError(f"where is {where!r}; it is one of {', '.join(map(repr, _WHERE))}")
    if (where in ("parameter", "output", "input") and not is_model) or (where == "tensor") != is_mapping:
        raise BackprobeError(
            f"where={where!r} and a subject of type {type(subject).__name__}: parameters, outputs and inputs belong to "
            "a torch.nn.Module; a mapping holds tensors by name; nodes belong to a model, to tensors or to nothing"
        )
    if side not in ("in", "out"):
        raise BackprobeError(f"side is {side!r}; it is 'in' or 'out'")
    if when not in ("each", "accumulated"):
        raise BackprobeError(f"when is {when!r}; it is 'each' or 'accumulated'")
    if keep < 0:
        raise BackprobeError(f"keep is {keep}; it is 0 or more")
    for name, given, place in (
        ("side", side != "out", "node"),
        ("module", module is not None, "node"),
        ("when", when != "each", "parameter"),
    ):
        if given and where != place:
            raise BackprobeError(f"{name} is for where={place!r}, not for where={where!r}")
    made = GradientEdit(rules_of(select, action), keep, measure)
    if where == "parameter":
        return made._attach(lambda: made._on_parameters(subject, when == "accumulated"))  # type: ignore[arg-type]
    if where == "tensor":
        return made._attach(lambda: made._on_tensors(subject))  # type: ignore[arg-type]
    if where == "node":
        return made._attach(lambda: made._on_nodes(subject, side, module))
    return made._attach(lambda: made._on_modules(subject, where))  # type: ignore[arg-type]
