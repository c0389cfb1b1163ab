"""Keeps the ledger: an account of each parameter that optimizers hold (Note [Accounts])."""

from __future__ import annotations

import sys
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from ...records import LedgerChanges, LedgerEvent, LedgerOptimizer, LedgerRow, LedgerStay, Site
from ...records import ledger as events
from ...source.assignments import freezes
from ...source.calls import module_casts
from ...source.frames import CodeLocation
from ...torch_internals import gradient_clipping, private
from ...torch_internals.gradient_clipping import ClipCall
from ...torch_internals.references import IdentityMap
from ..backward.active_backward import ActiveBackward
from ..backward.pending_call_record import PendingCallRecord
from ..ledger.account import Account, can_account, sample_norms
from ..ledger.changed_by import Change, change_by
from ..ledger.changes import MAX_MEASURED_PARAMETERS, MeasuredChange, StepChanges, keep
from ..ledger.observed_steps import ObservedSteps
from ..ledger.stays import (
    MAX_MEASURED_AGAIN,
    MAX_STEPS_MEASURED_AGAIN,
    Clips,
    Stays,
    stay_of,
    together,
    with_rate_of_zero,
)
from ..schedule.steps import SeenOptimizer
from ..tracker import Tracker
from ..tracker_context import TrackerContext

#: Most optimizers, most parameters of one, and most of its parameters whose values are compared after the first steps.
MAX_OPTIMIZERS, MAX_PARAMETERS, MAX_SAMPLED_LATER = 20, 2000, 32
#: Dtype of 16 bits -> how code names it: as a dtype, or by a method that casts to it.
CASTS_TO_16_BITS = {"bfloat16": ("bfloat16",), "float16": ("float16", "half")}
#: Most entries of all books: a sequence of events of a parameter is one.
MAX_ENTRIES = 50_000

#: A sequence of events, each with how often it happened in a row; and whether the parameter was frozen.
_Sequence = tuple[tuple[tuple[Any, int], ...], bool]


@dataclass
class _Periods:
    """How many periods of a parameter had a sequence of events, when, and how many steps moved the weight or not.

    :ivar stays: the steps that did not, by cause.
    """

    count: int = 0
    first: int = 0
    last: int = 0
    moved: int = 0
    kept: int = 0
    stays: Stays = field(default_factory=Stays)


@dataclass
class _Book:
    """The accounts of one optimizer.

    :ivar rows: sequence of events -> account -> its periods. ``lines``: sequence of events -> for each event the
        changes that were observed to cause it.
    :ivar next_sampled: position of the parameter with which the next sample of values begins.
    :ivar reads: lines that read gradients of the period; ``reads_in_vain``: those that read gradients that were cleared
        before a step used them.
    :ivar changes: measures the running step, if it is chosen for that; ``measured``: a step was measured since the
        accounts were opened; ``next_measured``: position of the parameter with which the next measurement begins;
        ``more_again``: how many more steps may be measured because one left weights as they were.
    """

    number: int
    ref: Callable[[], Any]
    name: str
    seen: SeenOptimizer | None = None
    spot: CodeLocation | None = None
    accounts: list[Account] = field(default_factory=list)
    ids: dict[int, Account] = field(default_factory=dict)
    is_open: bool = False
    periods: int = 0
    omitted: int = 0
    next_sampled: int = 0
    rows: dict[_Sequence, dict[Account, _Periods]] = field(default_factory=dict)
    lines: dict[_Sequence, list[set[Change]]] = field(default_factory=dict)
    reads: set[CodeLocation] = field(default_factory=set)
    reads_in_vain: set[CodeLocation] = field(default_factory=set)
    changes: StepChanges | None = None
    measured: bool = False
    next_measured: int = 0
    more_again: int = MAX_STEPS_MEASURED_AGAIN

    def close(self) -> None:
        if self.is_open:
            self.is_open = self.measured = False
            for account in self.accounts:
                account.close()


class LedgerTracker(Tracker):
    """Tracker that accounts for the gradients and weights of each optimizer's parameters, in some of the steps."""

    def __init__(self, context: TrackerContext) -> None:
        self._context, self._frames = context, context.frames
        self._observed = ObservedSteps(context)
        self._books: dict[int, _Book] = {}
        self._gone: list[_Book] = []
        #: In recorded steps: changes since the last look: to gradients, by the id of the gradient or of its parameter;
        #: and to weights, by their ids. Then the gradients, and the ids of the weights by themselves and by the
        #: addresses of their memory.
        self._changes: dict[int, set[Change]] = {}
        self._writes: dict[int, set[Change]] = {}
        self._grads: IdentityMap[None] = IdentityMap(private.tensor_ref)
        self._weights: dict[int, int] = {}
        self._entries = 0
        self._clips = Clips()
        self._thread = threading.get_ident()
        self._listener: Callable[[ClipCall], None] = self._clipping
        context.put_back.append(self.detached)

    def attached(self) -> None:
        self._thread = threading.get_ident()
        gradient_clipping.listen_to_calls(self._listener)

    def detached(self) -> None:
        gradient_clipping.unlisten_to_calls(self._listener)

    def _clipping(self, call: ClipCall) -> None:
        """Note the norms of a call that clips gradients of open accounts."""
        steps = self._context.steps
        if steps.passing or steps.paused or not self._observed.is_observed or threading.get_ident() != self._thread:
            return
        try:
            books = [book for book in self._books.values() if book.is_open]
            with private.measuring():
                if call.parameters is not None:
                    held: list[Any] = [p for p in call.parameters if any(id(p) in book.ids for book in books)]
                else:
                    numbers = {id(grad) for grad in call.grads}
                    held = [p for book in books for _, p in self._alive(book) if id(p.grad) in numbers]
                self._clips.add(call, held)
        except Exception as error:
            self._context.events.fault(self, error)

    # Looks

    def _open_books(self) -> list[_Book]:
        if not self._observed.is_observed:
            self._close_all()
        return [book for book in self._books.values() if book.is_open]

    def _close_all(self) -> None:
        self._clips.clear()
        for book in self._books.values():
            book.close()

    def _alive(self, book: _Book) -> Iterator[tuple[Account, Any]]:
        for account in book.accounts:
            parameter = account.ref()
            if parameter is not None and account.events is not None:
                yield account, parameter

    def _look(self, books: Iterable[_Book], at_backward: bool) -> None:
        """Note what the script has done since the last look."""
        in_step = at_backward and self._context.steps.stepping  # a closure calls the backward
        for book in books:
            cleared = False
            for account, parameter in self._alive(book):
                before, old = account.events[-1][0][0] if account.events else "", account.grad
                what = account.look_at_gradient(parameter)
                if what:
                    self._keep_lines(account, parameter, old() if old is not None else None, parameter.grad)
                    cleared = cleared or (what in events.CLEARING and before in events.GIVING)
            if cleared:
                book.reads_in_vain |= book.reads
            book.reads.clear()
            self._look_at_weights(book, in_step, at_backward)
        self._changes.clear()
        self._writes.clear()

    def _look_at_weights(self, book: _Book, in_step: bool, at_backward: bool) -> None:
        for account, parameter, value in self._valued(book):
            if account.look_at_weight(parameter, value, in_step):
                account.add_lines(self._writes.get(id(parameter), ()))
            if not at_backward:
                account.step_value = value
            elif account.first_value is None:
                account.first_value = value

    def _valued(self, book: _Book) -> list[tuple[Account, Any, float | None]]:
        """Return the accounts that are open, their parameters, and the norms of the weights to compare."""
        alive = list(self._alive(book))
        norms = iter(sample_norms([parameter for account, parameter in alive if account.sampled]))
        return [(a, p, next(norms) if a.sampled else None) for a, p in alive]

    def _keep_lines(self, account: Account, *changed: Any) -> None:
        """Keep the changes that were observed to one of these gradients or parameters, for the account's last event."""
        for one in changed:
            if (lines := self._changes.get(id(one))) is not None:
                account.add_lines(lines)

    # Events of backward calls

    def backward_attaching(self, running: ActiveBackward) -> None:
        if running.inside is None and running.kind != "autograd.grad":
            self._backward_begins()

    def sentinel_call_begins(self, spot: CodeLocation | None, roots: Sequence[Any]) -> None:
        self._backward_begins()

    def _backward_begins(self) -> None:
        books = self._open_books()
        if books:
            with private.measuring():
                self._look(books, True)

    def backward_recorded(self, running: ActiveBackward, recorded: PendingCallRecord) -> None:
        if running.inside is not None or running.kind == "autograd.grad":
            return
        if recorded.raised is not None:
            self._close_all()
        else:
            self._backward_ended(running.spot, recorded=True)

    def backward_repeated(self, running: ActiveBackward, recorded: PendingCallRecord) -> None:
        if running.kind != "autograd.grad":
            self._backward_ended(running.spot)

    def sentinel_call_ended(self, spot: CodeLocation | None) -> None:
        self._backward_ended(spot)

    def fast_path_calls(self, spot: CodeLocation | None, count: int) -> None:
        self._close_all()

    def call_failed(self, what: str) -> None:
        self._close_all()

    def _backward_ended(self, spot: CodeLocation | None, recorded: bool = False) -> None:
        books = self._open_books()
        if not books:
            return
        got: list[tuple[Account, str]] = []
        numbers: set[int] = set()
        with private.measuring():
            for book in books:
                for account, parameter in self._alive(book):
                    what = account.got_gradient(parameter)
                    if what:
                        got.append((account, what))
                        numbers.add(book.number)
                book.reads.clear()
        reached = tuple(sorted(numbers))
        for account, what in got:
            account.note(what, spot, reached)
        if recorded:
            self._listen_for_writes(books)

    # Lines of changes: in recorded steps only

    def _listen_for_writes(self, books: list[_Book]) -> None:
        """Take the identities by which writes to gradients and weights are known."""
        self._grads.clear()
        self._weights.clear()
        with private.unseen(), private.unnoticed():
            for book in books:
                for account, parameter in self._alive(book):
                    if account.grad is not None and (grad := account.grad()) is not None:
                        self._grads[grad] = None
                    self._weights[id(parameter)] = id(parameter)
                    if private.is_plain(parameter) and private.local(parameter) is parameter:
                        self._weights[parameter.untyped_storage().data_ptr()] = id(parameter)

    def _note_change(self, changes: dict[int, set[Change]], number: int, frame: Any, name: str) -> None:
        """Note in `changes` that `frame` changes the tensor with the id `number`.

        :param name: what makes the change; if `frame` is of a library, the function that the script called counts.
        """
        if (change := change_by(self._frames, frame, name)) is not None:
            changes.setdefault(number, set()).add(change)

    def grad_read_or_set(self, value: Any, put: bool, frame: Any) -> None:
        if put and self._weights:
            self._note_change(self._changes, id(value), frame, "")
        elif value is not None and value in self._grads and self._frames.is_user(frame.f_code):
            spot = self._frames.spot(frame)
            for book in self._books.values():
                if book.is_open and spot is not None:
                    book.reads.add(spot)

    def grad_cleared(self, tensor: Any, frame: Any) -> None:
        if id(tensor) in self._weights:
            self._note_change(self._changes, id(tensor), frame, "")

    def wrote(self, func: Any, written: list[Any], seq: int, frame: Any) -> None:
        name = getattr(func, "__name__", "")
        for tensor in written if self._weights else ():
            if tensor in self._grads:
                self._note_change(self._changes, id(tensor), frame, name)
            elif (number := self._weight_of(tensor)) is not None:
                self._note_change(self._writes, number, frame, name)

    def _weight_of(self, tensor: Any) -> int | None:
        """Return the id of the weight whose memory `tensor` has; ``None`` for none."""
        known = self._weights.get(id(tensor))
        if known is not None or not private.is_plain(tensor) or tensor.layout is not torch.strided:
            return known
        try:
            with private.unseen(), private.unnoticed():
                return self._weights.get(tensor.untyped_storage().data_ptr())
        except (RuntimeError, NotImplementedError):  # a tensor without memory
            return None

    def data_assigned(self, tensor: Any, frame: Any) -> None:
        if id(tensor) in self._weights:
            self._note_change(self._writes, id(tensor), frame, "assignment to .data")

    # Events of optimizers

    def optimizer_begins(self, optimizer: Any) -> None:
        book = self._book(optimizer)
        if book is not None and book.is_open and self._observed.is_observed:
            with private.measuring():
                self._look([book], False)
                book.changes = StepChanges(optimizer, chosen) if (chosen := self._choose_measured(book)) else None

    def closure_step_begins(self, optimizer: Any, closure: Any) -> None:
        """Begin the first period here if the step calls a closure: what the closure does is all of it that matters."""
        book = self._book(optimizer)
        if book is not None and not (book.is_open or book.ids) and self._observed.is_observed:
            with private.measuring():
                self._open(book, optimizer, stepped=False)

    def _choose_measured(self, book: _Book) -> list[Account]:
        """Choose the accounts whose changes are measured in this step: some in turn, in few of the observed steps.

        Of the first steps, these are those of which the number is a power of two; of a later row, its first step. After
        a step that left weights as they were, some of these are measured, too.
        """
        count, periods = len(book.accounts), book.periods + 1
        again = [account for account in book.accounts if account.stays][:MAX_MEASURED_AGAIN] if book.more_again else []
        if not count or (periods & (periods - 1) if self._observed.is_first else book.measured):
            book.more_again -= bool(again)
            return again
        book.measured, first = True, book.next_measured
        book.next_measured = (first + MAX_MEASURED_PARAMETERS) % count
        turn = (book.accounts[(first + i) % count] for i in range(min(count, MAX_MEASURED_PARAMETERS)))
        return list(dict.fromkeys([*again, *turn]))

    def _book(self, optimizer: Any) -> _Book | None:
        book = self._books.get(id(optimizer))
        if book is None or book.ref() is not optimizer:
            count = len(self._books) + len(self._gone)
            if count >= MAX_OPTIMIZERS:
                return None
            if book is not None:
                self._gone.append(book)
            book = _Book(count, weakref.ref(optimizer), type(optimizer).__name__)
            self._books[id(optimizer)] = book
            self._observed.optimizer_found()
        return book

    def optimizer_ended(self, optimizer: Any) -> None:
        book = self._book(optimizer)
        if book is None:
            return
        book.seen = self._context.steps.optimizers.get(id(optimizer))
        if not self._observed.is_observed:
            book.close()
            book.changes = None
            return
        spot = self._frames.spot(sys._getframe())
        book.spot = spot or book.spot
        with private.measuring():
            self._end_periods(book, self._take_changes(book))
            self._tell_others(book, spot)
            self._open(book, optimizer)

    def _take_changes(self, book: _Book) -> dict[Account, MeasuredChange]:
        changes, book.changes = book.changes, None
        found = changes.ended(self._context.steps.index) if changes is not None else {}
        for account, measured in found.items():
            keep(account, measured.change, len(book.accounts))
        return found

    def _end_periods(self, book: _Book, changes: Mapping[Account, MeasuredChange]) -> None:
        if not book.is_open:
            return
        book.periods += 1
        optimizer = book.ref()
        idle, zero_rate = _without_rate(optimizer), with_rate_of_zero(optimizer)
        for account, parameter, value in self._valued(book):
            self._note_use(account)
            found = account.events
            periods, clip = None, self._clips.take(parameter)
            account.stays = False
            if found is not None:
                sequence = tuple((event, times) for event, times in found), not parameter.requires_grad
                periods = self._periods_of(book, sequence, account)
            if found is None or periods is None:
                book.omitted += 1
                continue
            step = self._context.steps.index
            periods.first = periods.first if periods.count else step
            periods.count, periods.last = periods.count + 1, step
            if value is not None and account.step_value is not None:
                periods.moved += value != account.step_value
                in_vain = value == account.step_value and id(parameter) not in idle
                periods.kept += in_vain and account.grad is not None and not account.zero
                if value == account.step_value:
                    stay = stay_of(account, parameter, changes.get(account), id(parameter) in zero_rate, clip)
                    periods.stays.add(stay)
                    account.stays = stay.cause in (events.NOT_KNOWN, events.ROUNDED) or stay.largest is not None
            lines = book.lines.setdefault(sequence, [set() for _ in found])
            for i, known in enumerate(lines):
                known |= account.lines.get(i, set())

    def _periods_of(self, book: _Book, sequence: _Sequence, account: Account) -> _Periods | None:
        """Return the entry of a parameter for a sequence of events; ``None`` if it would be one too many."""
        known = book.rows.get(sequence, {}).get(account)
        if known is None and self._entries < MAX_ENTRIES:
            self._entries += 1
            known = book.rows.setdefault(sequence, {})[account] = _Periods()
        return known

    def _note_use(self, account: Account) -> None:
        if account.grad is None:
            account.note(events.SKIPPED)
        elif account.zero:
            account.note(events.USED_ZERO)
        else:
            account.note(events.USED_AGAIN if account.used else events.USED)

    def _tell_others(self, book: _Book, spot: CodeLocation | None) -> None:
        """Note the step in the accounts of other optimizers that have a gradient now."""
        for other in self._books.values():
            if other is book or not other.is_open:
                continue
            shared = [(a, p) for a, p in self._alive(other) if id(p) in book.ids and book.ids[id(p)].ref is a.ref]
            values = sample_norms([p for _, p in shared])
            for (account, parameter), value in zip(shared, values, strict=True):
                account.other_stepped(parameter, value)
            mine = {id(account) for account, _ in shared}
            for account, parameter in self._alive(other):
                if id(account) in mine or parameter.grad is not None:
                    what = events.SHARED_STEP if id(account) in mine else events.OTHER_STEP
                    account.note(what, spot, (book.number,))

    def _open(self, book: _Book, optimizer: Any, stepped: bool = True) -> None:
        """Begin the next period of an optimizer's parameters.

        :param stepped: whether the optimizer has just stepped.
        """
        known, book.ids = book.ids, {}
        opened = []
        for p in [p for group in optimizer.param_groups for p in group["params"]][:MAX_PARAMETERS]:
            if not can_account(p) or id(p) in book.ids:
                continue
            account = known.get(id(p))
            if account is None or account.ref() is not p:
                account = Account(p, self._context.names.leaves.get(p))
            book.ids[id(p)] = account
            opened.append((account, p))
        book.accounts = list(book.ids.values())
        self._choose_sampled(book)
        book.is_open = True
        self._changes.clear()
        self._writes.clear()
        norms = iter(sample_norms([p for account, p in opened if account.sampled]))
        for account, p in opened:
            account.open(p, next(norms) if account.sampled else None, stepped)

    def _choose_sampled(self, book: _Book) -> None:
        """Choose the accounts whose values are compared in the next period: all, or in later steps some in turn."""
        count = len(book.accounts)
        compares_all = self._observed.is_first or count <= MAX_SAMPLED_LATER
        if not (compares_all or book.is_open):  # the same ones in a row of steps
            book.next_sampled = (book.next_sampled + MAX_SAMPLED_LATER) % count
        for i, account in enumerate(book.accounts):
            account.sampled = compares_all or (i - book.next_sampled) % count < MAX_SAMPLED_LATER

    # What is known

    def records(self) -> tuple[Any, ...]:
        found: list[Any] = []
        for book in (*self._gone, *self._books.values()):
            if book.periods:
                found.append(self._optimizer(book))
                found += self._rows(book)
                found += self._changed(book)
        return tuple(found)

    def _optimizer(self, book: _Book) -> LedgerOptimizer:
        site = self._frames.site
        made = site(book.seen.spot) if book.seen is not None else None
        reads = tuple(sorted({one for spot in book.reads_in_vain if (one := site(spot)) is not None}, key=_line))
        numbers = len(book.accounts), book.periods, reads, book.omitted
        return LedgerOptimizer(book.number, book.name, made, site(book.spot), *numbers)

    def _rows(self, book: _Book) -> Iterator[LedgerRow]:
        site, name = self._frames.site, self._context.names.leaves.name
        casts = {account.dtype: self._casts_to(account.dtype) for rows in book.rows.values() for account in rows}
        may_freeze = tuple(freezes(self._frames)) if any(frozen for _, frozen in book.rows) else ()
        for sequence, accounts in book.rows.items():
            told = self._events(sequence, book.lines[sequence])
            groups: dict[tuple[Any, ...], tuple[list[str], dict[str, LedgerStay]]] = {}
            for account, periods in accounts.items():
                observed = site(account.leaf.frozen) if sequence[1] else None
                frozen_at = (observed,) if observed is not None else may_freeze if sequence[1] else ()
                told_of = sequence[1], frozen_at, observed is not None, account.dtype, casts[account.dtype]
                key = periods.count, periods.first, periods.last, periods.moved, periods.kept, *told_of
                names, stays = groups.setdefault((key, periods.stays.key), ([], {}))
                names.append(name(account.leaf))
                for cause, stay in periods.stays.by_cause.items():
                    stays[cause] = together(stays[cause], stay, True) if cause in stays else stay
            for (key, _), (names, stays) in groups.items():
                numbers = *key, tuple(stays.values())
                yield LedgerRow(tuple(names), book.number, told, *numbers)

    def _changed(self, book: _Book) -> Iterator[LedgerChanges]:
        name = self._context.names.leaves.name
        for account in book.accounts:
            if account.changes:
                yield LedgerChanges(name(account.leaf), book.number, tuple(account.changes))

    def _casts_to(self, dtype: str) -> tuple[Site, ...]:
        """Return the statements that may have cast the model to a dtype of 16 bits."""
        casts = CASTS_TO_16_BITS.get(dtype)
        return tuple(module_casts(self._frames, casts)) if casts is not None else ()

    def _events(self, sequence: _Sequence, lines: list[set[Change]]) -> tuple[LedgerEvent, ...]:
        told = []
        for ((what, spot, optimizers), times), known in zip(sequence[0], lines, strict=True):
            sites = {self._frames.site(one) for one, _ in known}
            calls = {call for _, call in known} if what in events.WRITES else set()
            site = self._frames.site(spot) if spot is not None else sites.pop() if len(sites) == 1 else None
            told.append(LedgerEvent(what, site, times, optimizers, calls.pop() if len(calls) == 1 else ""))
        return tuple(told)


def _without_rate(optimizer: Any) -> set[int]:
    """Return the ids of the parameters whose learning rate is zero, or unknown."""
    groups = optimizer.param_groups if optimizer is not None else ()
    return {id(p) for group in groups for p in group["params"] if not _is_positive(group.get("lr"))}


def _is_positive(rate: Any) -> bool:
    return (isinstance(rate, float | int) or (private.is_plain(rate) and rate.is_cpu)) and bool(rate > 0)


def _line(site: Site) -> tuple[str, int]:
    return site.file, site.line
