"""Keeps the ledger: an account of each parameter that optimizers hold (Note [Accounts])."""

from __future__ import annotations

import sys
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

import torch

from ...records import LedgerChanges, LedgerEvent, LedgerOptimizer, LedgerRow, LedgerStay, Site
from ...records import ledger as events
from ...source.assignments import freezes
from ...source.calls import constructions_in, module_casts
from ...source.frames import CodeLocation
from ...torch_internals import gradient_clipping, private
from ...torch_internals.gradient_clipping import ClipCall
from ...torch_internals.references import IdentityMap
from ..backward.active_backward import ActiveBackward
from ..backward.pending_call_record import PendingCallRecord
from ..ledger.account import Account, can_account, sample_norms
from ..ledger.changed_by import Change, change_by
from ..ledger.changes import MAX_MEASURED_PARAMETERS, MeasuredChange, StepChanges, add_change
from ..ledger.stays import (
    MAX_MEASURED_AGAIN,
    MAX_STEPS_MEASURED_AGAIN,
    ClippedNorms,
    Stays,
    explain_stay,
    ids_with_zero_rate,
    merged_stay,
)
from ..schedule.seen_optimizers import SeenOptimizer
from ..tracker import Tracker
from ..tracker_context import TrackerContext

#: Most optimizers, most parameters of one, and most of its parameters whose values are compared after the first steps.
MAX_OPTIMIZERS, MAX_PARAMETERS, MAX_SAMPLED_LATER = 20, 2000, 32
#: Dtype of 16 bits -> how code names it: as a dtype, or by a method that casts to it.
CASTS_TO_16_BITS = {"bfloat16": ("bfloat16",), "float16": ("float16", "half")}
#: Most entries of all ledgers: a sequence of events of a parameter is one.
MAX_ENTRIES = 50_000

#: A sequence of events, each with how often it happened in a row; and whether the parameter was frozen.
_Sequence = tuple[tuple[tuple[Any, int], ...], bool]


@dataclass
class _PeriodCounts:
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
class _OptimizerLedger:
    """The accounts of one optimizer.

    :ivar periods_by_sequence: sequence of events -> account -> its periods. ``causes_by_sequence``: sequence of events
        -> for each event, the changes that were observed to cause it.
    :ivar next_sampled: position of the parameter with which the next sample of values begins.
    :ivar reads: lines that read gradients of the period; ``reads_in_vain``: those that read gradients that were cleared
        before a step used them.
    :ivar changes: measures the running step, if it is chosen for that; ``is_measured``: a step was measured since the
        accounts were opened; ``next_measured``: position of the parameter with which the next measurement begins;
        ``remeasurements_left``: how many more steps may be measured because one left weights as they were.
    """

    number: int
    ref: Callable[[], torch.optim.Optimizer | None]
    name: str
    seen: SeenOptimizer | None = None
    spot: CodeLocation | None = None
    accounts: list[Account] = field(default_factory=list)
    account_by_id: dict[int, Account] = field(default_factory=dict)
    is_open: bool = False
    periods: int = 0
    omitted: int = 0
    next_sampled: int = 0
    periods_by_sequence: dict[_Sequence, dict[Account, _PeriodCounts]] = field(default_factory=dict)
    causes_by_sequence: dict[_Sequence, list[set[Change]]] = field(default_factory=dict)
    reads: set[CodeLocation] = field(default_factory=set)
    reads_in_vain: set[CodeLocation] = field(default_factory=set)
    changes: StepChanges | None = None
    is_measured: bool = False
    next_measured: int = 0
    remeasurements_left: int = MAX_STEPS_MEASURED_AGAIN

    def close(self) -> None:
        """End the running period of every account without counting it: the optimizer's steps are not observed for
        now.
        """
        if self.is_open:
            self.is_open = self.is_measured = False
            for account in self.accounts:
                account.end_period()


class LedgerTracker(Tracker):
    """Tracker that accounts for the gradients and weights of each optimizer's parameters, in some of the steps."""

    def __init__(self, context: TrackerContext) -> None:
        """Start without ledgers; ``_note_clipping`` is attached to gradient clipping only while the session
        observes.
        """
        self._context, self._frames = context, context.frames
        self._observed_steps = context.observed_steps
        self._ledgers: dict[int, _OptimizerLedger] = {}
        self._ended_ledgers: list[_OptimizerLedger] = []
        #: In recorded steps: changes since the last look: to gradients, by the id of the gradient or of its parameter;
        #: and to weights, by their ids. Then the gradients, and the ids of the weights by themselves and by the
        #: addresses of their memory.
        self._gradient_changes: dict[int, set[Change]] = {}
        self._weight_writes: dict[int, set[Change]] = {}
        self._gradients: IdentityMap[None] = IdentityMap(private.tensor_ref)
        self._weight_ids: dict[int, int] = {}
        #: The lines that were observed to cast a parameter last.
        self._casts: IdentityMap[CodeLocation | None] = IdentityMap(private.tensor_ref)
        self._entry_count = 0
        self._clipped_norms = ClippedNorms()
        self._thread = threading.get_ident()
        self._listener: Callable[[ClipCall], None] = self._note_clipping
        context.restorers.append(self.observing_pauses)

    def observing_begins(self) -> None:
        """Start listening to calls of gradient clipping, and remember the thread: only its calls are noted."""
        self._thread = threading.get_ident()
        gradient_clipping.listen_to_calls(self._listener)

    def observing_pauses(self) -> None:
        """Stop listening to calls of gradient clipping; may be called twice."""
        gradient_clipping.unlisten_to_calls(self._listener)

    def _note_clipping(self, call: ClipCall) -> None:
        """Note the norms of a call that clips gradients of parameters in open accounts; ignore it if steps are not
        observed.

        Called by the gradient clipping functions. Errors are counted and do not reach the script.
        """
        steps = self._context.steps
        if (
            steps.fast_path_left
            or steps.is_paused
            or not self._observed_steps.is_observed
            or threading.get_ident() != self._thread
        ):
            return
        try:
            ledgers = [ledger for ledger in self._ledgers.values() if ledger.is_open]
            with private.measuring():
                if call.parameters is not None:
                    held: list[torch.Tensor] = [
                        p for p in call.parameters if any(id(p) in ledger.account_by_id for ledger in ledgers)
                    ]
                else:
                    numbers = {id(grad) for grad in call.grads}
                    held = [p for ledger in ledgers for _, p in self._open_accounts(ledger) if id(p.grad) in numbers]
                self._clipped_norms.add(call, held)
        except Exception as error:
            self._context.events.fault(self, error)

    # Looks

    def _open_ledgers(self) -> list[_OptimizerLedger]:
        """Return the ledgers whose accounts are open; first close all of them if the running step is not observed."""
        if not self._observed_steps.is_observed:
            self._close_all()
        return [ledger for ledger in self._ledgers.values() if ledger.is_open]

    def _close_all(self) -> None:
        """Drop all unfinished periods: close every ledger and forget the norms of clipped gradients."""
        self._clipped_norms.clear()
        for ledger in self._ledgers.values():
            ledger.close()

    def _open_accounts(self, ledger: _OptimizerLedger) -> Iterator[tuple[Account, torch.Tensor]]:
        """Yield each account of `ledger` in which a period is running, with its parameter, if that is still alive."""
        for account in ledger.accounts:
            parameter = account.ref()
            if parameter is not None and account.events is not None:
                yield account, parameter

    def _compare_accounts(self, ledgers: Iterable[_OptimizerLedger], at_backward: bool) -> None:
        """Compare the gradients and weights of all open accounts with the last comparison, and add events for changes.

        Called before a backward call (`at_backward`) and before an optimizer's step. Lines that read a gradient which
        was cleared unused are kept in ``reads_in_vain``; the changes observed since the last comparison are used up.
        """
        in_step = at_backward and self._context.steps.is_stepping  # a closure calls the backward
        for ledger in ledgers:
            cleared = False
            for account, parameter in self._open_accounts(ledger):
                before, old = account.events[-1][0][0] if account.events else "", account.grad
                what = account.compare_gradient(parameter)
                if what:
                    self._note_causes(account, parameter, old() if old is not None else None, parameter.grad)
                    cleared = cleared or (what in events.CLEARING and before in events.GIVING)
            if cleared:
                ledger.reads_in_vain |= ledger.reads
            ledger.reads.clear()
            self._compare_weights(ledger, in_step, at_backward)
        self._gradient_changes.clear()
        self._weight_writes.clear()

    def _compare_weights(self, ledger: _OptimizerLedger, in_step: bool, at_backward: bool) -> None:
        """Add events for weights of `ledger` that changed since the last comparison, with the lines that wrote to them.

        :param in_step: the optimizer is stepping, and its closure calls the backward.
        :param at_backward: a backward call begins; otherwise the optimizer is about to step, and the norms are kept to
            tell whether the step moves the weights.
        """
        for account, parameter, value in self._accounts_with_norms(ledger):
            if account.compare_weight(parameter, value, in_step):
                account.add_causes(self._weight_writes.get(id(parameter), ()))
            if not at_backward:
                account.step_weight_norm = value
            elif account.first_weight_norm is None:
                account.first_weight_norm = value

    def _accounts_with_norms(self, ledger: _OptimizerLedger) -> list[tuple[Account, torch.Tensor, float | None]]:
        """Return each open account with its parameter and the norm of its weight; ``None`` if the weight is not
        sampled.
        """
        open_accounts = list(self._open_accounts(ledger))
        norms = iter(sample_norms([parameter for account, parameter in open_accounts if account.is_sampled]))
        return [(a, p, next(norms) if a.is_sampled else None) for a, p in open_accounts]

    def _note_causes(self, account: Account, *changed: torch.Tensor | None) -> None:
        """Keep the changes that were observed to one of these gradients or parameters, for the account's last event."""
        for one in changed:
            if (lines := self._gradient_changes.get(id(one))) is not None:
                account.add_causes(lines)

    # Events of backward calls

    def backward_attaching(self, running: ActiveBackward) -> None:
        """Compare all accounts before an outermost recorded backward call that accumulates gradients."""
        if running.inside is None and running.kind != "autograd.grad":
            self._before_backward()

    def sentinel_call_begins(self, spot: CodeLocation | None, roots: Sequence[object]) -> None:
        """Compare all accounts before a backward call that is not recorded."""
        self._before_backward()

    def _before_backward(self) -> None:
        """Note what happened to gradients and weights since the last comparison, before a backward call changes
        gradients.
        """
        ledgers = self._open_ledgers()
        if ledgers:
            with private.measuring():
                self._compare_accounts(ledgers, True)

    def backward_recorded(self, running: ActiveBackward, recorded: PendingCallRecord) -> None:
        """Note which parameters the recorded outermost call gave a gradient; drop the running periods if it raised."""
        if running.inside is not None or running.kind == "autograd.grad":
            return
        if recorded.raised is not None:
            self._close_all()
        else:
            self._after_backward(running.spot, recorded=True)

    def backward_repeated(self, running: ActiveBackward, recorded: PendingCallRecord) -> None:
        """Note which parameters got a gradient from a call whose forward was not recorded."""
        if running.kind != "autograd.grad":
            self._after_backward(running.spot)

    def sentinel_call_ended(self, spot: CodeLocation | None) -> None:
        """Note which parameters got a gradient from a call that was not recorded."""
        self._after_backward(spot)

    def fast_path_calls(self, spot: CodeLocation | None, count: int) -> None:
        """Drop the running periods: calls of the fast path were not observed."""
        self._close_all()

    def call_failed(self, what: str) -> None:
        """Drop the running periods: it is unknown which gradients the failed call changed."""
        self._close_all()

    def _after_backward(self, spot: CodeLocation | None, recorded: bool = False) -> None:
        """Add an event to each open account whose gradient a backward call changed.

        :param spot: the line of the call.
        :param recorded: the step is recorded, so that later writes to these gradients and weights can be recognised.
        """
        ledgers = self._open_ledgers()
        if not ledgers:
            return
        got: list[tuple[Account, str]] = []
        numbers: set[int] = set()
        with private.measuring():
            for ledger in ledgers:
                for account, parameter in self._open_accounts(ledger):
                    what = account.update_after_backward(parameter)
                    if what:
                        got.append((account, what))
                        numbers.add(ledger.number)
                ledger.reads.clear()
        reached = tuple(sorted(numbers))
        for account, what in got:
            account.add_event(what, spot, reached)
        if recorded:
            self._collect_write_keys(ledgers)

    # Lines of changes: in recorded steps only

    def _collect_write_keys(self, ledgers: list[_OptimizerLedger]) -> None:
        """Collect the gradients, and the ids and addresses of the weights, by which writes to them are recognised."""
        self._gradients.clear()
        self._weight_ids.clear()
        with private.disable_function_modes(), private.hide_ops():
            for ledger in ledgers:
                for account, parameter in self._open_accounts(ledger):
                    if account.grad is not None and (grad := account.grad()) is not None:
                        self._gradients[grad] = None
                    self._weight_ids[id(parameter)] = id(parameter)
                    if private.is_plain(parameter) and private.local(parameter) is parameter:
                        self._weight_ids[parameter.untyped_storage().data_ptr()] = id(parameter)

    def _note_change(self, changes: dict[int, set[Change]], number: int, frame: FrameType, name: str) -> None:
        """Note in `changes` that `frame` changes the tensor with the id `number`.

        :param name: what makes the change; if `frame` is of a library, the function that the script called counts.
        """
        if (change := change_by(self._frames, frame, name)) is not None:
            changes.setdefault(number, set()).add(change)

    def grad_read_or_set(self, value: object, put: bool, frame: FrameType) -> None:
        """Note the line that replaces a gradient (`put`), or the user's line that reads a gradient of an open
        account.
        """
        if put and self._weight_ids:
            self._note_change(self._gradient_changes, id(value), frame, "")
        elif value is not None and value in self._gradients and self._frames.is_user(frame.f_code):
            spot = self._frames.spot(frame)
            for ledger in self._ledgers.values():
                if ledger.is_open and spot is not None:
                    ledger.reads.add(spot)

    def grad_cleared(self, tensor: torch.Tensor, frame: FrameType) -> None:
        """Note the line that sets the gradient of a parameter in an open account to ``None``."""
        if id(tensor) in self._weight_ids:
            self._note_change(self._gradient_changes, id(tensor), frame, "")

    def wrote(self, func: object, written: list[torch.Tensor], seq: int, frame: FrameType) -> None:
        """Note the line and the function that wrote in place to gradients or weights of open accounts."""
        name = getattr(func, "__name__", "")
        for tensor in written if self._weight_ids else ():
            if tensor in self._gradients:
                self._note_change(self._gradient_changes, id(tensor), frame, name)
            elif (number := self._weight_id(tensor)) is not None:
                self._note_change(self._weight_writes, number, frame, name)

    def _weight_id(self, tensor: torch.Tensor) -> int | None:
        """Return the id of the weight whose memory `tensor` shares, such as a view or ``.data`` of it; ``None`` for
        none.
        """
        known = self._weight_ids.get(id(tensor))
        if known is not None or not private.is_plain(tensor) or tensor.layout is not torch.strided:
            return known
        try:
            with private.disable_function_modes(), private.hide_ops():
                return self._weight_ids.get(tensor.untyped_storage().data_ptr())
        except (RuntimeError, NotImplementedError):  # a tensor without memory
            return None

    def data_assigned(self, tensor: torch.Tensor, frame: FrameType) -> None:
        """Note the line that assigns to ``.data`` of a weight in an open account."""
        if id(tensor) in self._weight_ids:
            self._note_change(self._weight_writes, id(tensor), frame, "assignment to .data")

    def parameter_cast(self, tensor: torch.Tensor, frame: FrameType) -> None:
        """Note the line that casts a parameter; an account keeps the line from before it was made."""
        self._casts[tensor] = self._frames.spot(frame)

    # Events of optimizers

    def optimizer_begins(self, optimizer: torch.optim.Optimizer) -> None:
        """Compare the optimizer's accounts before its step, and begin to measure the changes of the chosen
        parameters.
        """
        ledger = self._ledger_of(optimizer)
        if ledger is not None and ledger.is_open and self._observed_steps.is_observed:
            with private.measuring():
                self._compare_accounts([ledger], False)
                ledger.changes = StepChanges(optimizer, chosen) if (chosen := self._choose_measured(ledger)) else None

    def closure_step_begins(self, optimizer: torch.optim.Optimizer, closure: object) -> None:
        """Begin the first period here if the step calls a closure: what the closure does is all of it that matters."""
        ledger = self._ledger_of(optimizer)
        if ledger is not None and not (ledger.is_open or ledger.account_by_id) and self._observed_steps.is_observed:
            with private.measuring():
                self._begin_periods(ledger, optimizer, stepped=False)

    def _choose_measured(self, ledger: _OptimizerLedger) -> list[Account]:
        """Choose the accounts whose changes are measured in this step: some in turn, in few of the observed steps.

        Of the first steps, these are those of which the number is a power of two; of a later row, its first step. After
        a step that left weights as they were, some of these are measured, too.
        """
        count, periods = len(ledger.accounts), ledger.periods + 1
        again = (
            [account for account in ledger.accounts if account.needs_measurement][:MAX_MEASURED_AGAIN]
            if ledger.remeasurements_left
            else []
        )
        if not count or (periods & (periods - 1) if self._observed_steps.is_first else ledger.is_measured):
            ledger.remeasurements_left -= bool(again)
            return again
        ledger.is_measured, first = True, ledger.next_measured
        ledger.next_measured = (first + MAX_MEASURED_PARAMETERS) % count
        turn = (ledger.accounts[(first + i) % count] for i in range(min(count, MAX_MEASURED_PARAMETERS)))
        return list(dict.fromkeys([*again, *turn]))

    def _ledger_of(self, optimizer: torch.optim.Optimizer) -> _OptimizerLedger | None:
        """Return the ledger of an optimizer, made at its first step; ``None`` after ``MAX_OPTIMIZERS``.

        A ledger of a freed optimizer with the same id is set aside and stays in the records.
        """
        ledger = self._ledgers.get(id(optimizer))
        if ledger is None or ledger.ref() is not optimizer:
            count = len(self._ledgers) + len(self._ended_ledgers)
            if count >= MAX_OPTIMIZERS:
                return None
            if ledger is not None:
                self._ended_ledgers.append(ledger)
            ledger = _OptimizerLedger(count, weakref.ref(optimizer), type(optimizer).__name__)
            self._ledgers[id(optimizer)] = ledger
            self._observed_steps.optimizer_found(optimizer)
        return ledger

    def optimizer_ended(self, optimizer: torch.optim.Optimizer) -> None:
        """End the period of the optimizer's parameters after its step, tell other optimizers' accounts, and begin the
        next.

        If the step is not observed, close the ledger instead.
        """
        ledger = self._ledger_of(optimizer)
        if ledger is None:
            return
        ledger.seen = self._context.steps.optimizers.get(id(optimizer))
        if not self._observed_steps.is_observed:
            ledger.close()
            ledger.changes = None
            return
        spot = self._frames.spot(sys._getframe())
        ledger.spot = spot or ledger.spot
        with private.measuring():
            self._end_periods(ledger, self._finish_measurement(ledger))
            self._add_event_to_others(ledger, spot)
            self._begin_periods(ledger, optimizer)

    def _finish_measurement(self, ledger: _OptimizerLedger) -> dict[Account, MeasuredChange]:
        """Measure how the step changed the chosen parameters; store the changes in their accounts and return them by
        account.
        """
        changes, ledger.changes = ledger.changes, None
        found = changes.measure(self._context.steps.index) if changes is not None else {}
        for account, measured in found.items():
            add_change(account, measured.change, len(ledger.accounts))
        return found

    def _end_periods(self, ledger: _OptimizerLedger, changes: Mapping[Account, MeasuredChange]) -> None:
        """End the period of each open account: count its sequence of events, and whether the step moved the weight.

        :param changes: by account, the changes that were measured in this step; they help to explain an unmoved weight.
        """
        if not ledger.is_open:
            return
        ledger.periods += 1
        optimizer = ledger.ref()
        idle, zero_rate = _ids_without_positive_rate(optimizer), ids_with_zero_rate(optimizer)
        for account, parameter, value in self._accounts_with_norms(ledger):
            self._add_use_event(account)
            found = account.events
            periods, clip = None, self._clipped_norms.pop(parameter)
            account.needs_measurement = False
            if found is not None:
                sequence = tuple((event, times) for event, times in found), not parameter.requires_grad
                periods = self._periods_of(ledger, sequence, account)
            if found is None or periods is None:
                ledger.omitted += 1
                continue
            step = self._context.steps.index
            periods.first = periods.first if periods.count else step
            periods.count, periods.last = periods.count + 1, step
            if value is not None and account.step_weight_norm is not None:
                periods.moved += value != account.step_weight_norm
                unchanged = value == account.step_weight_norm and id(parameter) not in idle
                periods.kept += unchanged and account.grad is not None and not account.is_zero
                if value == account.step_weight_norm:
                    stay = explain_stay(account, parameter, changes.get(account), id(parameter) in zero_rate, clip)
                    periods.stays.add(stay)
                    account.needs_measurement = (
                        stay.cause in (events.NOT_KNOWN, events.ROUNDED) or stay.largest is not None
                    )
            lines = ledger.causes_by_sequence.setdefault(sequence, [set() for _ in found])
            for i, known in enumerate(lines):
                known |= account.causes.get(i, set())

    def _periods_of(self, ledger: _OptimizerLedger, sequence: _Sequence, account: Account) -> _PeriodCounts | None:
        """Return the counts of an account's periods with this sequence of events, made if needed; ``None`` after
        ``MAX_ENTRIES`` entries.
        """
        known = ledger.periods_by_sequence.get(sequence, {}).get(account)
        if known is None and self._entry_count < MAX_ENTRIES:
            self._entry_count += 1
            known = ledger.periods_by_sequence.setdefault(sequence, {})[account] = _PeriodCounts()
        return known

    def _add_use_event(self, account: Account) -> None:
        """Add the event that says how the step used the gradient: none, zero, used before, or new."""
        if account.grad is None:
            account.add_event(events.SKIPPED)
        elif account.is_zero:
            account.add_event(events.USED_ZERO)
        else:
            account.add_event(events.USED_AGAIN if account.is_reused else events.USED)

    def _add_event_to_others(self, ledger: _OptimizerLedger, spot: CodeLocation | None) -> None:
        """Add an event for the step to accounts of other optimizers that hold the parameter or have a gradient now."""
        for other in self._ledgers.values():
            if other is ledger or not other.is_open:
                continue
            shared = [
                (a, p)
                for a, p in self._open_accounts(other)
                if id(p) in ledger.account_by_id and ledger.account_by_id[id(p)].ref is a.ref
            ]
            values = sample_norms([p for _, p in shared])
            for (account, parameter), value in zip(shared, values, strict=True):
                account.accept_other_step(parameter, value)
            mine = {id(account) for account, _ in shared}
            for account, parameter in self._open_accounts(other):
                if id(account) in mine or parameter.grad is not None:
                    what = events.SHARED_STEP if id(account) in mine else events.OTHER_STEP
                    account.add_event(what, spot, (ledger.number,))

    def _begin_periods(self, ledger: _OptimizerLedger, optimizer: torch.optim.Optimizer, stepped: bool = True) -> None:
        """Begin the next period of an optimizer's parameters.

        :param stepped: whether the optimizer has just stepped.
        """
        known, ledger.account_by_id = ledger.account_by_id, {}
        opened = []
        for p in [p for group in optimizer.param_groups for p in group["params"]][:MAX_PARAMETERS]:
            if not can_account(p) or id(p) in ledger.account_by_id:
                continue
            account = known.get(id(p))
            if account is None or account.ref() is not p:
                account = Account(p, self._context.names.leaves.get(p), self._casts.get(p))
            ledger.account_by_id[id(p)] = account
            opened.append((account, p))
        ledger.accounts = list(ledger.account_by_id.values())
        self._choose_sampled(ledger)
        ledger.is_open = True
        self._gradient_changes.clear()
        self._weight_writes.clear()
        norms = iter(sample_norms([p for account, p in opened if account.is_sampled]))
        for account, p in opened:
            account.begin_period(p, next(norms) if account.is_sampled else None, stepped)

    def _choose_sampled(self, ledger: _OptimizerLedger) -> None:
        """Choose the accounts whose values are compared in the next period: all, or in later steps some in turn."""
        count = len(ledger.accounts)
        compares_all = self._observed_steps.is_first or count <= MAX_SAMPLED_LATER
        if not (compares_all or ledger.is_open):  # the same ones in a row of steps
            ledger.next_sampled = (ledger.next_sampled + MAX_SAMPLED_LATER) % count
        for i, account in enumerate(ledger.accounts):
            account.is_sampled = compares_all or (i - ledger.next_sampled) % count < MAX_SAMPLED_LATER

    # What is known

    def records(self) -> tuple[object, ...]:
        """Return, for each optimizer that stepped in observed steps, its record, its rows of events, and measured
        changes.
        """
        found: list[object] = []
        for ledger in (*self._ended_ledgers, *self._ledgers.values()):
            if ledger.periods:
                found.append(self._optimizer_record(ledger))
                found += self._row_records(ledger)
                found += self._change_records(ledger)
        return tuple(found)

    def _optimizer_record(self, ledger: _OptimizerLedger) -> LedgerOptimizer:
        """Return the record of an optimizer: its lines, its numbers of parameters and periods, and reads of cleared
        gradients.
        """
        site = self._frames.site
        made = site(ledger.seen.spot) if ledger.seen is not None else None
        reads = tuple(sorted({one for spot in ledger.reads_in_vain if (one := site(spot)) is not None}, key=_line_key))
        numbers = len(ledger.accounts), ledger.periods, reads, ledger.omitted
        return LedgerOptimizer(ledger.number, ledger.name, made, site(ledger.spot), *numbers)

    def _row_records(self, ledger: _OptimizerLedger) -> Iterator[LedgerRow]:
        """Yield one row per sequence of events and group of parameters whose counts, dtype and freezing lines are
        equal.
        """
        site, name = self._frames.site, self._context.names.leaves.name
        narrow = {a.dtype for rows in ledger.periods_by_sequence.values() for a in rows if a.cast is None}
        casts = {dtype: self._casts_to(dtype) for dtype in narrow}
        may_freeze = tuple(freezes(self._frames)) if any(frozen for _, frozen in ledger.periods_by_sequence) else ()
        for sequence, accounts in ledger.periods_by_sequence.items():
            event_records = self._event_records(sequence, ledger.causes_by_sequence[sequence])
            groups: dict[tuple[Any, ...], tuple[list[str], dict[str, LedgerStay]]] = {}
            for account, periods in accounts.items():
                observed = site(account.leaf.frozen) if sequence[1] else None
                frozen_at = (observed,) if observed is not None else may_freeze if sequence[1] else ()
                cast = site(account.cast)
                is_cast = cast is not None and account.dtype in CASTS_TO_16_BITS
                cast_at = (cast,) if is_cast else casts.get(account.dtype, ())
                facts_of_parameter = sequence[1], frozen_at, observed is not None, account.dtype, cast_at
                key = periods.count, periods.first, periods.last, periods.moved, periods.kept, *facts_of_parameter
                names, stays = groups.setdefault((key, periods.stays.key), ([], {}))
                names.append(name(account.leaf))
                for cause, stay in periods.stays.by_cause.items():
                    stays[cause] = merged_stay(stays[cause], stay, True) if cause in stays else stay
            for (key, _), (names, stays) in groups.items():
                numbers = *key, tuple(stays.values())
                yield LedgerRow(tuple(names), ledger.number, event_records, *numbers)

    def _change_records(self, ledger: _OptimizerLedger) -> Iterator[LedgerChanges]:
        """Yield the measured changes of each parameter of an optimizer that has any."""
        name = self._context.names.leaves.name
        for account in ledger.accounts:
            if account.changes:
                yield LedgerChanges(name(account.leaf), ledger.number, tuple(account.changes))

    def _casts_to(self, dtype: str) -> tuple[Site, ...]:
        """Return the lines that may have given parameters a dtype of 16 bits, if no cast of them was observed.

        A line that makes modules in that dtype comes before a statement that casts, which would have been observed.
        """
        casts = CASTS_TO_16_BITS.get(dtype)
        return tuple(constructions_in(self._frames, casts) or module_casts(self._frames, casts)) if casts else ()

    def _event_records(self, sequence: _Sequence, lines: list[set[Change]]) -> tuple[LedgerEvent, ...]:
        """Return the events of a sequence as records; an event has a line or a call only if exactly one was observed.

        :param lines: for each event, the changes (line and call) that caused it.
        """
        event_records = []
        for ((what, spot, optimizers), times), known in zip(sequence[0], lines, strict=True):
            sites = {self._frames.site(one) for one, _ in known}
            calls = {call for _, call in known} if what in events.WRITES else set()
            site = self._frames.site(spot) if spot is not None else sites.pop() if len(sites) == 1 else None
            event_records.append(LedgerEvent(what, site, times, optimizers, calls.pop() if len(calls) == 1 else ""))
        return tuple(event_records)


def _ids_without_positive_rate(optimizer: torch.optim.Optimizer | None) -> set[int]:
    """Return the ids of the parameters whose learning rate is not positive, or unknown."""
    groups = optimizer.param_groups if optimizer is not None else ()
    return {id(p) for group in groups for p in group["params"] if not _is_positive(group.get("lr"))}


def _is_positive(rate: Any) -> bool:
    """Return whether a learning rate, a number or a tensor on the CPU, is known to be above zero."""
    return (isinstance(rate, float | int) or (private.is_plain(rate) and rate.is_cpu)) and bool(rate > 0)


def _line_key(site: Site) -> tuple[str, int]:
    """Return the key by which sites are sorted: file and line."""
    return site.file, site.line
