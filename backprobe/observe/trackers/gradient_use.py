"""What becomes of gradients: whether an optimizer uses what backward calls give it, once."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import torch

from ...records import GradientUse, Site
from ...source.definitions import calls_of_method
from ...source.frames import CodeLocation
from ...torch_internals import private
from ...torch_internals.async_scalars import fetch
from ..backward.calls import ActiveBackward
from ..backward.pending_call_record import PendingCallRecord
from ..events import Tracker
from ..tracker_context import TrackerContext

#: Tensors of an optimizer whose gradients are kept from one step to the next, and the elements that one may have.
EACH, SIZE = 2, 65536
#: Steps in a row that used gradients again; steps that found none. So many are enough.
AGAIN, NOTHING = 3, 4
#: Steps that are looked at: the first, and then so many in a row out of so many.
FIRST, ROW, EVERY = 16, 5, 64
#: Optimizers that begin after those and have first steps of their own, and how many.
LATE, NEXT = 4, 8
#: Backward calls after which an optimizer would have stepped.
UNUSED = 12
#: Optimizers that are looked at.
MOST = 20


@dataclass
class _Used:
    """The gradient that an optimizer used of one tensor, and a copy."""

    tensor: weakref.ref[Any]
    ref: Callable[[], Any]
    grad: torch.Tensor
    version: int


@dataclass
class _Held:
    """What is known of an optimizer, the tensors ``ids``.

    :ivar used: since its last step: what it used, without what has been cleared since.
    :ivar met: backward calls that found it so; ``at``: the line of the first.
    :ivar given: the line of a backward call since then that gave gradients to its tensors.
    :ivar row: steps in a row that used gradients of the one before; ``first``: the first of them.
    :ivar before: ``met`` when the optimizer began to step: calls after that are a closure's. ``closes``: nothing had
        been given then, so that what is comes from a closure; an optimizer may clear that itself when it has used it.
    :ivar nothing: steps in a row that found no gradients though some had been given, of those that were looked at;
        ``since``: the first of them, where one before it found some; ``some``: one found any;
        ``gap``: the most of them before one that did.
    :ivar began: the step in which it stepped first, where that came late: those after it are looked at too.
    """

    name: str
    ref: Callable[[], Any]
    ids: frozenset[int] = frozenset()
    used: list[_Used] = field(default_factory=list)
    met: int = 0
    at: CodeLocation | None = None
    given: CodeLocation | None = None
    row: int = 0
    first: int = 0
    before: int = 0
    closes: bool = False
    nothing: int = 0
    since: int = 0
    some: bool = False
    gap: int = 0
    stepped: CodeLocation | None = None
    backward: CodeLocation | None = None
    began: int = 0

    @property
    def how(self) -> str:
        """What is to be told of it, so far."""
        return "again" if self.row >= AGAIN else "cleared" if self.nothing >= max(NOTHING, 2 * self.gap + 1) else ""


class GradientsUsed(Tracker):
    """Holds what optimizers find in ``.grad`` against what backward calls put there."""

    def __init__(self, scene: TrackerContext) -> None:
        self._scene = scene
        self._held: dict[int, _Held] = {}
        #: Until an optimizer steps: backward calls, the line of the last, a tensor that they reach, and its values.
        self._calls = 0
        self._spot: CodeLocation | None = None
        self._first: tuple[weakref.ref[Any], torch.Tensor] | None = None
        #: The step up to which the last optimizer is looked at that began late, and how many may do so.
        self._new, self._more = 0, LATE
        scene.may_pass.append(self._until_looked)

    # What backward calls find, and give

    def backward_starts(self, running: ActiveBackward) -> None:
        if running.inside is None and running.kind != "autograd.grad":
            self._met(running.spot)

    def call_counted(self, spot: CodeLocation | None, roots: Sequence[Any]) -> None:
        self._met(spot)
        self._calls += 1

    def calls_passed(self, spot: CodeLocation | None, count: int) -> None:
        """Nothing is known of what was cleared in them."""
        self._calls += count
        for held in self._held.values():
            held.used, held.given = [], None

    def _met(self, spot: CodeLocation | None) -> None:
        for held in self._held.values():
            if not held.used:
                continue
            with private.unseen(), private.unnoticed(), torch.no_grad():
                held.used = _that_are(held.used, _some if held.met else _still)
            held.at = held.at if held.met else spot
            held.met += 1

    def backward_over(self, running: ActiveBackward, recorded: PendingCallRecord) -> None:
        if running.inside is not None or recorded.raised is not None or running.kind == "autograd.grad":
            return
        self._calls += 1
        for held in self._held.values():
            if held.given is None and self._looks(held):
                mine = [v.grad for _, v in running.graph.leaves if id(v) in held.ids]
                with private.unseen(), private.unnoticed(), torch.no_grad():
                    held.given = running.spot if _some_not_zero(mine) else None
        if not self._scene.steps.ever_stepped:
            self._spot = running.spot
            if self._first is None:
                self._keep(running)

    def call_over(self, spot: CodeLocation | None) -> None:
        """Of a call whose nodes are not recorded: what optimizers hold has gradients, or has none."""
        for number, held in self._held.items():
            seen = self._scene.steps.optimizers.get(number)
            if held.given is None and seen is not None and self._looks(held):
                with private.unseen(), private.unnoticed(), torch.no_grad():
                    some = _some_not_zero(getattr(ref(), "grad", None) for ref in seen.refs.values())
                    held.given = spot if some else None

    def backward_repeated(self, running: ActiveBackward, recorded: PendingCallRecord) -> None:
        if running.kind != "autograd.grad":
            self.call_over(running.spot)

    def _keep(self, running: ActiveBackward) -> None:
        with private.unseen(), private.unnoticed(), torch.no_grad():
            leaf = min((v for _, v in running.graph.leaves if _readable(v)), key=torch.Tensor.numel, default=None)
            if leaf is not None:
                self._first = private.tensor_ref(leaf), leaf.detach().clone()

    # What optimizers find

    def optimizer_begins(self, optimizer: Any) -> None:
        self._first = None
        held = self._held.get(id(optimizer))
        if held is None or (held.ref() is not optimizer and not held.how):  # the number may be that of one that is gone
            if held is None and len(self._held) >= MOST:
                return
            held = self._held[id(optimizer)] = _Held(type(optimizer).__name__, weakref.ref(optimizer))
            if self._scene.steps.index >= FIRST and self._more:
                self._more -= 1
                held.began = self._scene.steps.index
                self._new = held.began + NEXT
        held.before, held.closes = held.met, held.given is None
        if not self._looks(held):
            return
        with private.unseen(), private.unnoticed(), torch.no_grad():
            self._finds(held, optimizer)
            if held.met:
                self._finds_again(held)

    def _finds(self, held: _Held, optimizer: Any) -> None:
        tensors = [p for group in optimizer.param_groups for p in group["params"]]
        if held.given is not None:
            if _some_not_zero(p.grad for p in tensors):
                held.gap = max(held.gap, held.nothing)
                held.some, held.nothing = True, 0
            elif (held.some or not held.closes) and not any(
                other is not held and other.some and not other.ids.isdisjoint(held.ids) for other in self._held.values()
            ):
                held.since = held.since if held.nothing or not held.some else self._scene.steps.index
                held.nothing += 1
                held.backward, held.stepped = held.given, self._scene.frames.spot(sys._getframe())

    def _finds_again(self, held: _Held) -> None:
        added = [one for one in held.used if _added_to(one)] if held.row < AGAIN else []
        some = _that_are(added, _some)
        still = {id(one) for one in _that_are(some, _still)}
        if any(id(one) not in still for one in some):
            held.first = held.first if held.row else self._scene.steps.index
            held.row += 1
            held.backward, held.stepped = held.at, self._scene.frames.spot(sys._getframe())
        elif held.row < AGAIN:
            held.row = 0

    def optimizer_over(self, optimizer: Any) -> None:
        held = self._held.get(id(optimizer))
        if held is None:
            return
        if self._looks(held):
            with private.unseen(), private.unnoticed(), torch.no_grad():
                if held.closes and held.given is not None:
                    self._finds(held, optimizer)
                if held.met > held.before:
                    self._finds_again(held)
        held.met, held.given, held.used = 0, None, []
        if not self._looks(held) or held.row >= AGAIN:
            return
        tensors = [p for group in optimizer.param_groups for p in group["params"]]
        held.ids = frozenset(map(id, tensors))
        with private.unseen(), private.unnoticed(), torch.no_grad():
            for p in islice(sorted(filter(_plain, tensors), key=torch.Tensor.numel), EACH):
                refs = private.tensor_ref(p), private.tensor_ref(p.grad)
                held.used.append(_Used(*refs, p.grad.detach().clone(), p.grad._version))

    def _looks(self, held: _Held) -> bool:
        step = self._scene.steps.index
        return step - held.began < (NEXT if held.began else FIRST) or step % EVERY < ROW

    def _until_looked(self, step: int, told: bool) -> int:
        """Steps from `step` on that may pass. Where those are told of, of two rows that are looked at one is kept
        whole."""
        if not told:
            return 0 if step < self._new else sys.maxsize
        apart = 2 * EVERY
        return 0 if step < max(FIRST, self._new) or step % apart < ROW else apart - step % apart

    def records(self) -> tuple[GradientUse, ...]:
        site, seen = self._scene.frames.site, self._scene.steps.optimizers
        found = []
        for number, held in self._held.items():
            how = held.how
            if how:
                made = site(seen[number].spot) if number in seen else None
                stepped, backward = site(held.stepped), site(held.backward)
                clears = self._clears(backward, stepped) if how == "cleared" else None
                first = held.first if how == "again" else held.since
                told = held.name, how, first, stepped, backward, clears, made
                found.append(GradientUse(*told))
        return (*found, *self._never())

    def _clears(self, backward: Site | None, stepped: Site | None) -> Site | None:
        """The only line that calls ``zero_grad`` and can have done so between these two: one of their function that
        stands before the one or after the other clears what is not needed any more. Of several the only one that
        stands in one of their functions between them."""
        lines = {line for line, *_ in calls_of_method(self._scene.frames, "zero_grad")}
        if len(lines) > 1 and backward is not None and stepped is not None:
            lines = {line for line in lines if not (_is_before(line, backward) or _is_before(stepped, line))}
            if len(lines) > 1:
                lines = {line for line in lines if _is_before(backward, line) or _is_before(line, stepped)}
        return lines.pop() if len(lines) == 1 else None

    def _never(self) -> list[GradientUse]:
        """Optimizers that did not step in a script that came to its end, and nothing else changed the weights."""
        steps = self._scene.steps
        if steps.ever_stepped or self._calls < UNUSED or self._first is None or self._scene.raised is not None:
            return []
        tensor = self._first[0]()
        with private.unseen(), private.unnoticed(), torch.no_grad():
            if tensor is None or not _readable(tensor) or not torch.equal(tensor.detach(), self._first[1]):
                return []
        site, found = self._scene.frames.site, []
        for seen in steps.optimizers.values():
            optimizer = seen.ref()
            groups = optimizer.param_groups if optimizer is not None else ()
            if any(p is tensor for group in groups for p in group["params"]):
                found.append(GradientUse(seen.name, "unused", 0, None, site(self._spot), made=site(seen.spot)))
        return found


def _is_before(one: Site, other: Site) -> bool:
    """Whether it stands before the other in one function."""
    return (one.file, one.function) == (other.file, other.function) and one.line < other.line


def _readable(tensor: Any) -> bool:
    """Whether the values of a tensor can be read and kept: not where FSDP has taken their memory back."""
    return _is_plain(tensor) and 0 < tensor.numel() <= SIZE and private.local(tensor) is tensor


def _some_not_zero(grads: Iterable[Any]) -> bool:
    """Whether one of these gradients may be something else than zeros: the small ones are looked at first."""
    return any(map(_not_zero, sorted((grad for grad in grads if grad is not None), key=torch.Tensor.numel)))


def _not_zero(grad: Any) -> bool:
    """Whether a gradient may be something else than zeros. An accelerator is not waited for."""
    here = private.local(grad)
    return not _is_plain(here) or not here.is_cpu or bool(here.any())


def _is_plain(tensor: Any) -> bool:
    kind = type(tensor) in (torch.Tensor, torch.nn.Parameter)
    return kind and tensor.layout is torch.strided and not private.hands_off(tensor)


def _plain(tensor: Any) -> bool:
    """Whether there is a gradient that an optimizer used of it, and it can be kept."""
    grad = tensor.grad if isinstance(tensor, torch.Tensor) else None
    return grad is not None and _readable(grad)


def _of(one: _Used) -> Any:
    """The gradient in its place, where it is one of the same shape."""
    grad: Any = getattr(one.tensor(), "grad", None)
    return grad if grad is not None and _readable(grad) and grad.shape == one.grad.shape else None


def _that_are(used: list[_Used], condition: Callable[[_Used], Any]) -> list[_Used]:
    """Those of `used` for which a condition holds, which is a tensor on an accelerator: these are fetched together."""
    answers = [condition(one) for one in used]
    away = [answer for answer in answers if isinstance(answer, torch.Tensor)]
    read = iter(fetch(away))
    known = [next(read) if isinstance(answer, torch.Tensor) else answer for answer in answers]
    return [one for one, holds in zip(used, known, strict=True) if holds]


def _still(one: _Used) -> Any:
    """Whether the gradient is there as the optimizer left it, and is not zero. An accelerator is waited for only where
    nobody has written to it in a way that is counted."""
    grad = _of(one)
    if grad is None or grad._version != one.version:
        return False
    return _answer((grad == one.grad).all() & grad.any())


def _added_to(one: _Used) -> bool:
    """Whether what is there came by adding to the gradient: torch adds in place, unless it makes a graph of that. Else
    the script has put another one in its place."""
    grad = _of(one)
    return grad is not None and (grad is one.ref() or grad.requires_grad)


def _some(one: _Used) -> Any:
    """Whether there is a gradient that is not zero."""
    grad = _of(one)
    return False if grad is None else _answer(grad.any())


def _answer(condition: torch.Tensor) -> Any:
    """A condition that is a tensor: as it is where it is on an accelerator."""
    return bool(condition) if condition.is_cpu else condition
