"""What backward calls leave in ``.grad`` before an optimizer steps, in the steps that are looked at.

Note [What came of a gradient]: the engine's calls are heard (Note [In place of the engine's function]), next to torch's
own, so that others hear them as they are. When one is over that gave an optimizer's parameters gradients, their total
norm is taken; the optimizer is given another one where a script has clipped in between. That says nothing where a
``GradScaler`` is known and the loss was not seen to be multiplied by it, in the first step, in which no scaler is known
yet, and where an optimizer calls a closure.

Note [Who clips]: that norm is another pass over all gradients. A script that clips writes to them in each step, mostly,
or never does. So where nothing came between the backward and the optimizer in ``SURE`` looks, and the norm was the same
to the bit, it is taken in one look of ``SELDOM``, until something does; in the others no call is heard, but for those
of a script that accumulates.

Calls are those of micro batches where each was made at the same place, without ``retain_graph``, from a graph that was
made after the call before, and where gradients are meanwhile as that left them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from threading import get_ident
from typing import Any

import torch

from ...torch_internals import engine_calls, private
from ...torch_internals.entry_points import as_list, node_of
from ...torch_internals.uncompiled import dynamo_passthrough
from .noise import Micro
from .numbers import norms, usable

#: Looks after which a script is taken for one that does not clip; one of how many is to find that out of such a one.
SURE, SELDOM = 3, 4
#: By device and dtype: parameters, each with its group.
Groups = dict[Any, list[tuple[Any, Any]]]
#: Of a parameter: a reference to its gradient, and the version of that.
Mark = tuple[Any, int] | None


def stepped(optimizer: Any) -> Groups:
    """The parameters with gradients that can be looked at."""
    found: Groups = {}
    off: dict[Any, bool] = {}
    for group in optimizer.param_groups:
        for p in group["params"]:
            grad = getattr(p, "grad", None)
            if grad is None or not private.is_plain(p) or not private.is_plain(grad):
                continue
            device = p.device
            if off.get(device) is None:
                off[device] = private.hands_off(p)
            if off[device]:
                continue
            if usable(p) and usable(grad) and not (private.is_freed(p) or private.is_freed(grad)):
                found.setdefault((device, p.dtype, grad.dtype), []).append((p, group))
    return found


def total(lengths: Iterable[Any]) -> Any:
    """Of vectors of norms the norm of all together, on the device of the first."""
    known = list(lengths)
    return torch.cat([length.float().to(known[0].device) for length in known]).norm()


class Listening:
    """Whether the calls that give an optimizer gradients are heard: Note [Who clips]. `turn`: how often it was looked
    at before."""

    def __init__(self) -> None:
        self._alone, self._accumulates = 0, False

    def measures(self, turn: int) -> bool:
        """Whether that look is to find out if gradients are what the backward left."""
        return self._alone < SURE or turn % SELDOM == 0

    def hears(self, turn: int) -> bool:
        return self._accumulates or self.measures(turn)

    def heard(self, calls: int, touched: bool) -> None:
        """So many calls gave something. `touched`: something wrote to the gradients then, or put others there, as far
        as versions tell."""
        self._accumulates = calls > 1
        self._alone = 0 if touched else self._alone + 1

    def found(self, factor: float) -> None:
        if factor != 1.0:  # also what changes no version: ``p.grad.data.clamp_()``
            self._alone = 0


class Heard:
    """What is known of the calls that gave one optimizer gradients, since it stepped last."""

    def __init__(self, micro: Micro, measures: bool) -> None:
        #: The total norm of its gradients when the last one was over; ``None`` where it is not known. Whether that is
        #: taken.
        self.length: Any = None
        self.measures = measures
        #: What a scaler multiplied the last loss by.
        self.scale: Any = None
        self.micro = micro
        #: How the last one left gradients, where it was made, and the counter of nodes then.
        self._left: list[Mark] | None = None
        self._place, self._nodes = None, 0

    def begins(self, before: list[Mark], place: Any, oldest: int, again: bool) -> None:
        """One is about to be made, from a graph whose roots have numbers from `oldest` on. `again`: which it keeps."""
        self.micro.spoilt = self.micro.spoilt or again
        if self._left is None or not same(self._left, before):
            self.micro.restart(not any(before))
            self._place = place
            return
        if place != self._place or oldest < self._nodes:
            self.micro.spoilt = True
        self.micro.begins()

    def over(self, after: list[Mark], sure: bool) -> None:
        """It is over, and gave something. `sure`: whether the scale is known."""
        self.micro.spoilt = self.micro.spoilt or not sure
        self.micro.over()
        self._left, self._nodes = after, private.next_sequence_nr()

    def is_touched(self, optimizer: Any) -> bool:
        """Whether its gradients are others now, as far as versions tell."""
        return self._left is None or not same(self._left, marks(optimizer))


class Accumulated:
    """Hears the engine's calls.

    :param due: gives the optimizers that are looked at when they step next, how often they were looked at before, and
        whether the norm that is left to them is taken.
    :param place: gives the script's place at or above a frame.
    :param scale: gives what the roots of a call were multiplied by, which is ``None`` for nothing, and whether that is
        known.
    :param fault: told of what fails here.
    :param clock: gives a mark at the beginning of this work, and ``took`` is told it at the end.
    """

    def __init__(
        self,
        due: Callable[[], list[tuple[Any, int, bool]]],
        place: Callable[[Any], Any],
        scale: Callable[[Sequence[Any]], tuple[Any, bool]],
        fault: Callable[[Exception], None],
        clock: Callable[[], Any],
        took: Callable[[Any], None],
    ) -> None:
        self._place = place
        self._due, self._scale, self._fault, self._clock, self._took = due, scale, fault, clock, took
        self._thread = get_ident()
        self._heard: dict[int, Heard] = {}

    def attach(self) -> None:
        self._thread = get_ident()
        engine_calls.listen(self, inside=True)

    def detach(self) -> None:
        engine_calls.unlisten(self)
        self._heard.clear()

    def take(self, optimizer: Any) -> Heard | None:
        """It is about to step: what was heard."""
        return self._heard.pop(id(optimizer), None)

    @dynamo_passthrough
    def __call__(self, engine: Callable[..., Any], roots: Any, *args: Any, **kwargs: Any) -> Any:
        adds = kwargs.get("accumulate_grad") and get_ident() == self._thread and not private.compiling()
        known = self._safely(self._begins, roots, args, sys._getframe(1)) if adds else None
        try:
            result = engine(roots, *args, **kwargs)
        except BaseException:
            if known:
                self._heard.clear()
            raise
        if known:
            self._safely(self._over, known)
        return result

    def _safely(self, look: Callable[..., Any], *given: Any) -> Any:
        if private.graph_task() != -1:  # a call inside another one
            return None
        mark = self._clock()
        try:
            with private.measuring():
                return look(*given)
        except Exception as error:
            self._heard.clear()
            self._fault(error)
        finally:
            self._took(mark)
        return None

    def _begins(self, roots: Any, args: Any, frame: Any) -> Any:
        """A call is about to be made: the optimizers, how their gradients are, and the scale."""
        optimizers = self._due()
        if not optimizers or (torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing()):
            return None
        nodes = [node_of(root) for root in as_list(roots)]
        oldest = min((node._sequence_nr() for node in nodes if node is not None), default=0)
        again = bool(args[1])  # retain_graph
        known, place = [], self._place(frame)
        for optimizer, turn, measures in optimizers:
            heard = self._heard.get(id(optimizer))
            if heard is None:
                heard = self._heard[id(optimizer)] = Heard(Micro(optimizer, turn), measures)
            before = marks(optimizer)
            heard.begins(before, place, oldest, again)
            known.append((optimizer, heard, before))
        return known, self._scale(roots)

    def _over(self, known: Any) -> None:
        optimizers, (scale, sure) = known
        for optimizer, heard, before in optimizers:
            after = marks(optimizer)
            if same(before, after):
                continue  # it has nothing to do with these
            heard.over(after, sure)
            heard.length, heard.scale = None, scale
            if sure and heard.measures and (groups := stepped(optimizer)):
                length = total(torch.stack(norms([p.grad.detach() for p, _ in members])) for members in groups.values())
                heard.length = length if scale is None else length / scale.to(length.device)


def marks(optimizer: Any) -> list[Mark]:
    """How its gradients are, by parameter: what is written to one, or puts another there, changes it."""
    grads = [p.grad if private.is_plain(p) else None for group in optimizer.param_groups for p in group["params"]]
    return [None if grad is None else (private.tensor_ref(grad), grad._version) for grad in grads]


def same(one: list[Mark], other: list[Mark]) -> bool:
    return len(one) == len(other) and all(
        a is b if a is None or b is None else a[1] == b[1] and a[0]() is b[0]() for a, b in zip(one, other, strict=True)
    )
