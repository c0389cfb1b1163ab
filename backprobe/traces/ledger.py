"""The ledger of a parameter: what gave it a gradient, what was done to that, and what moved the weight."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape

from .. import thresholds
from ..basics.text import counted, few, html_table, number, plural, text_table
from ..records import (
    Facts,
    LedgerBuffer,
    LedgerChanges,
    LedgerEvent,
    LedgerOptimizer,
    LedgerRow,
    LedgerStay,
    Site,
    WeightChange,
)
from ..records import ledger as events
from ..records.places import short_path

#: The events that are the optimizer's step, with their words.
STEPS = {
    events.USED: "{} stepped with the gradient",
    events.USED_ZERO: "{} stepped with zeros",
    events.USED_AGAIN: "{} stepped with the gradient of its last step",
    events.SKIPPED: "{} stepped without a gradient",
}
REASONS = {
    events.NO_RATE: "the learning rate was 0",
    events.ZERO_GRADIENT: "the gradient was zero",
    events.NO_GRADIENT: "it had no gradient",
    events.FROZEN: "it had no gradient: it is frozen",
}
HEAD = ("steps", "times", "what happened", "line")
CHANGE_HEAD = ("step", "change (of the weight)", "gradient", "momentum", "weight decay", "the rest")
#: Most parameters of a module whose changes are printed below its rows.
MAX_PARAMETERS_WITH_CHANGES = 8


@dataclass(frozen=True)
class Ledger:
    """The ledger of one parameter, or of all parameters of a module.

    Gradients and weights are accounted for in the first steps and in some rows of later ones. A period begins when the
    optimizer has stepped and ends when it has stepped again; periods in which the same happened are one row.

    :ivar name: the parameter or module; ``rows``: its rows, by first step; ``optimizers``: by number.
    :ivar changes: what some of the steps changed. ``buffers``: the buffer of that name, or those of the module.
    """

    name: str
    rows: Sequence[LedgerRow]
    optimizers: Mapping[int, LedgerOptimizer]
    changes: Sequence[LedgerChanges] = ()
    buffers: Sequence[LedgerBuffer] = ()

    def __repr__(self) -> str:
        if not (self.rows or self.buffers):
            return f"{self.name}: no step of an optimizer that holds it was accounted for"
        return "\n\n".join(
            f"{title}\n{text_table(head, body, right)}".rstrip() for title, head, body, right in self._tables()
        )

    def _repr_html_(self) -> str:
        tables = self._tables()
        return "".join(f"<p>{escape(title)}</p>{html_table(head, body, right)}" for title, head, body, right in tables)

    def _tables(self) -> Iterator[tuple[str, tuple[str, ...], list[tuple[str, ...]], set[int]]]:
        """Yield tables with their titles, heads and right-aligned columns."""
        for names, rows in self._groups():
            yield names, HEAD, self._table(rows), {1}
        changes = [one for one in self.changes if any(c.change or c.gradient for c in one.changes)]
        for one in changes if len(changes) <= MAX_PARAMETERS_WITH_CHANGES else ():
            title = f"{one.parameter}: how much steps of {self.optimizers[one.optimizer].name} changed it"
            split = any(change.gradient is not None for change in one.changes)
            head = CHANGE_HEAD if split else CHANGE_HEAD[:2]
            body = [change_cells(change)[: len(head)] for change in one.changes]
            yield title if split else f"{title}; the parts are not known", head, body, {0}

        for buffer in self.buffers:
            yield buffer_title(buffer), HEAD, buffer_rows(buffer), {1}

    def _groups(self) -> Iterator[tuple[str, list[LedgerRow]]]:
        """Yield the title of each table of parameters, and its rows: parameters of one optimizer that share rows."""
        groups: dict[tuple[int, tuple[str, ...]], list[LedgerRow]] = {}
        for row in self.rows:
            groups.setdefault((row.optimizer, row.parameters), []).append(row)
        for (optimizer, names), rows in groups.items():
            held = self.optimizers[optimizer]
            made = f" ({_place(held.made)})" if held.made is not None else ""
            yield f"{few(names)}, in {held.name}{made}", rows

    def _table(self, rows: Sequence[LedgerRow]) -> list[tuple[str, ...]]:
        """Return the cells of a table: one line for each event, with steps and number of periods at the
        first of a row.
        """
        table: list[tuple[str, ...]] = []
        for row in rows:
            steps = f"{row.first}" if row.first == row.last else f"{row.first} to {row.last}"
            for i, event in enumerate(row.events):
                head = (steps, f"{row.periods:,}") if i == 0 else ("", "")
                table.append((*head, *self._line(row, event)))
        return table

    def _line(self, row: LedgerRow, event: LedgerEvent) -> tuple[str, str]:
        """Return text and place of an event; after a step of the optimizer, also how often the weight moved."""
        text, site = event_line(row, event, self.optimizers)
        if event.what in STEPS and (moved := movement(row)):
            text += f": {moved}"
        return text, _place(site)


def buffer_title(buffer: LedgerBuffer) -> str:
    """Return the title of a buffer's table: names, class, how often it was compared and how often it changed."""
    title = f"{few(buffer.names)}, {plural(buffer.names, 'a buffer', 'buffers')} of {buffer.class_name}"
    changed = f"changed {counted(buffer.changed, 'time')}" if buffer.changed else "never changed"
    return f"{title}: compared {counted(buffer.looks, 'time')}, {changed}"


def buffer_rows(buffer: LedgerBuffer) -> list[tuple[str, ...]]:
    """Return the cells of a buffer's table: steps, times, what happened, line."""
    return [(steps, times, what, _place(site)) for steps, times, what, site in buffer_events(buffer)]


def buffer_events(buffer: LedgerBuffer) -> list[tuple[str, str, str, Site | None]]:
    """Return what changed a buffer, and from when on it was not finite, as (steps, times, what happened, line)."""
    first, last = buffer.first, buffer.last
    steps = f"{first}" if first == last else f"{first} to {last}"
    found: list[tuple[str, str, Site | None]] = []
    if buffer.forwards:
        found.append((f"{buffer.forwards:,}", "forward in training mode", buffer.called))
    found += [(f"{one.times:,}", f"written by {one.call or 'the script'}", one.site) for one in buffer.writes]
    if buffer.unknown:
        found.append((f"{buffer.unknown:,}", "changed, by a call that was not observed", None))
    rows = [(steps if not i else "", *row) for i, row in enumerate(found)]
    return [*rows, (f"{buffer.step} on", "", buffer.what, None)] if buffer.what else rows


def event_line(
    row: LedgerRow, event: LedgerEvent, optimizers: Mapping[int, LedgerOptimizer]
) -> tuple[str, Site | None]:
    """Return what happened in an event of `row`, as text, and its line if that is known."""
    held = optimizers[row.optimizer]
    if event.what in STEPS:
        return STEPS[event.what].format(held.name), held.stepped
    text = (
        event.what
        + (f" by {event.call}" if event.call else "")
        + (f", {counted(event.times, 'time')}" if event.times > 1 else "")
    )
    others = [optimizers[n].name for n in event.optimizers if n in optimizers]
    if event.what in (events.OTHER_STEP, events.SHARED_STEP) and others:
        text += f" ({', '.join(others)})"
    return text, event.site


def change_cells(change: WeightChange) -> tuple[str, ...]:
    """Return the cells of a change of a weight: step, size, the parts of gradient, momentum and decay, and what they
    leave.
    """
    size = number(change.change)
    if change.weight > 0 and change.change > 0:
        size += f" ({100 * change.change / change.weight:.2g}%)"
    if change.gradient is None:
        return str(change.step), size, *["not known"] * 3, ""
    norms = change.gradient, change.momentum or 0.0, change.decay or 0.0
    shares = change.gradient_share, change.momentum_share, change.decay_share
    cells = [_part(norm, share, change.change) for norm, share in zip(norms, shares, strict=True)]
    rest = f"{number(change.rest)}: " + ("rounding" if change.explained else "not explained")
    has_rest = not change.explained or change.rest > thresholds.CHANGE_MIN_REST * max(norms)
    return str(change.step), size, *cells, rest if has_rest else ""


def _part(norm: float, share: float, change: float) -> str:
    """Return the norm of a part of a change as text, with its share of the change in percent."""
    if not norm:
        return "0"
    return f"{number(norm)} ({round(100 * share)}%)" if change else number(norm)


def ledger_of(facts: Facts, name: str) -> Ledger:
    """Return the ledger of the parameter `name`, or of the parameters of the module `name`."""
    rows = []
    for row in facts.of(LedgerRow):
        names = tuple(n for n in row.parameters if _belongs(n, name))
        if names:
            rows.append(replace(row, parameters=names))
    rows.sort(key=lambda row: (row.optimizer, row.first))
    optimizers = {one.number: one for one in facts.of(LedgerOptimizer)}
    changes = [one for one in facts.of(LedgerChanges) if _belongs(one.parameter, name) and one.optimizer in optimizers]
    buffers = []
    for buffer in facts.of(LedgerBuffer):
        names = tuple(n for n in buffer.names if _belongs(n, name))
        if names:
            buffers.append(replace(buffer, names=names))
    return Ledger(name, rows, optimizers, changes, buffers)


def _belongs(parameter: str, name: str) -> bool:
    """Return whether a parameter is `name`, or in the module of that name."""
    return parameter == name or parameter.startswith(f"{name}.") or not name


def movement(row: LedgerRow) -> str:
    """Return in how many steps the weight moved, in words, of those in which its values were compared; empty if none
    were.
    """
    still = stayed(row)
    if not row.moved + still:
        return ""
    if not still:
        return "it moved"
    text = f"it moved in {row.moved:,} of {row.moved + still:,}" if row.moved else "it stayed as it was"
    return text + why_stayed(row)


def stayed(row: LedgerRow) -> int:
    """Return in how many steps of the row the weight stayed as it was."""
    return max(row.kept, sum(stay.periods for stay in row.stayed))


def why_stayed(row: LedgerRow) -> str:
    """Return why steps left the weight as it was, as the end of a sentence; empty if that is not known."""
    known = [stay for stay in row.stayed if stay.cause != events.NOT_KNOWN]
    total = sum(stay.periods for stay in row.stayed)
    if not known:
        return ""
    reasons = [f"because {_reason(stay)}" for stay in known]
    if row.moved or len(known) > 1 or known[0].periods < total:
        counts = [counted(stay.periods, "time") for stay in known]
        reasons = [f"{reason} ({count})" for reason, count in zip(reasons, counts, strict=True)]
    return ("; it stayed " if row.moved else ", ") + ", ".join(reasons)


def _reason(stay: LedgerStay) -> str:
    """Return why a step left the weight as it was, as a clause."""
    if stay.cause == events.CLIPPED:
        return f"clipping took the norm of the gradients from {number(stay.norm_before)} to {number(stay.norm_after)}"
    if stay.cause == events.ROUNDED:
        return f"the update rounds away: at most {number(stay.largest)} of half a unit in the last place"
    return REASONS[stay.cause]


def _place(site: Site | None) -> str:
    """Return a line as the text ``file.py:12``; empty if it is not known."""
    return f"{short_path(site.file)}:{site.line}" if site is not None else ""
