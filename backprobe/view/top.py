"""A live run as one frame of text: progress, curves, findings so far, and layers that stand out.

``Watch`` reads the news of a run each time and makes a ``Frame``, plain data; ``drawn`` formats the frame for a
terminal of any width.
"""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Literal

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from ..basics.terminal import console
from ..basics.text import counted, few, number
from ..findings.levels.alarms import ALARMS
from ..records import Finding, OptimizerSeen, Process, RankSeen, Site
from ..records.places import at_line, short_path
from ..traces import Trace, numbers_of
from ..traces.coverage import endings
from ..traces.gradients import OPTIMIZER
from . import ranks
from .figures import some_with_gradients
from .outliers import Levels, Standing, alarm_text, value_text, words
from .overhead import overhead
from .spark import BLOCKS, SIGNS, spark

#: Maximum number of earlier steps, evenly spaced, that are read for the first frame.
MAX_SAMPLED_STEPS = 120
#: Number of last steps that are all read, and maximum number of steps that are kept.
LAST_STEPS, MAX_KEPT_STEPS = 40, 2000
#: Maximum number of ranks with a row of their own.
ROWS = 16
_SEVERITY = {"error": "bold red", "warning": "bold yellow", "info": "bold blue"}


@dataclass(frozen=True)
class Said:
    """A finding or an alarm in two lines."""

    kind: str
    severity: str
    text: str
    where: str
    number: int = 0


@dataclass(frozen=True)
class Frame:
    """The state of a run at one moment.

    :ivar rate: steps per second, over the last ones. ``watching``: the overhead in words.
    :ivar losses, norms: of steps, in order, thinned if there are many. ``after_clip``: whether the norms are those of
        clipped and unscaled gradients.
    :ivar ranks: rank, step, loss, state.
    :ivar looks: number of steps in which statistics were measured, the last of them ``looked``.
    """

    name: str
    script: str
    state: str
    live: bool
    step: int | None = None
    rate: float | None = None
    watching: str = ""
    losses: Sequence[float] = ()
    norms: Sequence[float] = ()
    after_clip: bool = False
    lr: str = ""
    ranks: Sequence[tuple[str, str, str, str]] = ()
    told: Sequence[Said] = ()
    standing: Sequence[Standing] = ()
    looks: int = 0
    looked: int = -1


@dataclass(frozen=True)
class _Point:
    """The loss, gradient norm and seconds of a step, and how many of these seconds are overhead."""

    step: int
    loss: float | None
    norm: float | None
    seconds: float
    watching: float = 0.0


class Watch:
    """Reads one run again and again while it is going on, and makes a frame of what is known so far."""

    def __init__(self) -> None:
        self._begin("")

    def _begin(self, part: str) -> None:
        """Forget all data and begin to read another process of the run."""
        #: The process whose steps are read: in a multi-process run, another one may be chosen later.
        self._part = part
        self._levels = Levels()
        #: Number of step positions that have been read.
        self._read = 0
        self._points: list[_Point] = []
        self._after_clip = False

    def frame(self, trace: Trace, name: str, now: float) -> Frame:
        """Return the frame of `trace` at the time `now`, in seconds since 1970."""
        if (part := str(trace.info.get("part", ""))) != self._part:
            self._begin(part)
        for look in trace.measured(self._levels.step):
            self._levels.add(look)
        self._take(trace)
        ran = ranks.several(trace)
        live = any(one.ended == "running" for one in trace.processes) and not (trace.over and not ran)
        steps = [point.step for point in self._points[-1:]] + [self._levels.step] * (self._levels.looks > 0)
        if trace.over and not ran and trace.info.get("steps"):
            steps.append(int(trace.info["steps"]) - 1)
        late = self._points[-LAST_STEPS:]
        return Frame(
            name=name,
            script=str(trace.info.get("script", "")),
            state=_state(trace, live, now),
            live=live,
            step=max(steps, default=None),
            rate=_rate(late),
            watching=overhead(ranks.took(ran) or trace.info, parts=False),
            losses=[p.loss for p in self._points if p.loss is not None],
            norms=[p.norm for p in self._points if p.norm is not None],
            after_clip=self._after_clip,
            lr=_range([*self._levels.of("lr").values()]),
            ranks=_ranks(trace, ran, now),
            told=self._messages(trace),
            standing=self._levels.standing,
            looks=self._levels.looks,
            looked=self._levels.step,
        )

    def _take(self, trace: Trace) -> None:
        """Read the steps that are new since the last frame; if there are many, a sample of them."""
        end = len(numbers_of(trace.steps))
        begin = max(end - LAST_STEPS, self._read)
        past = range(self._read, begin, max(1, -(-(begin - self._read) // MAX_SAMPLED_STEPS)))
        for at, (row, gradients) in zip(
            (*past, *range(begin, end)), some_with_gradients(trace, (*past, *range(begin, end))), strict=False
        ):
            if at == end - 1 and row.loss is None and not row.seconds:
                break  # it is not over
            self._read = at + 1
            self._points.append(_Point(row.index, row.loss, gradients.total, row.seconds, row.watching))
            self._after_clip = gradients.source == OPTIMIZER if gradients.total is not None else self._after_clip
        if len(self._points) > MAX_KEPT_STEPS:
            del self._points[:-LAST_STEPS:2]

    def _messages(self, trace: Trace) -> list[Said]:
        """Return the findings, and the alarms for which there is no finding yet, as two lines each."""
        found = [_finding(i, one) for i, one in enumerate(trace.findings, 1)]
        kinds = {one.kind for one in trace.findings} & {*ALARMS}
        made = [one.site for one in trace.facts.of(OptimizerSeen) if one.site is not None]
        where = f"optimizer  {_place(made[0])}" if made else ""
        alarms = [one for one in self._levels.alarms if one.kind not in kinds]
        return [*found, *(Said(one.kind, "warning", alarm_text(one), where) for one in alarms)]


def _finding(i: int, one: Finding) -> Said:
    """Return a finding as two lines of a frame; `i` is its number."""
    site = one.sites[0] if one.sites else None
    where = "" if site is None else f"{site.role}  {_place(site.site)}"
    return Said(one.kind, one.severity, one.title, where, i)


def _place(site: Site) -> str:
    """Return a line as text: file, line and function."""
    return f"{at_line(short_path(site.file), site.line)} in {site.function}"


def _state(trace: Trace, live: bool, now: float) -> str:
    """Return the state of a run in words: for how long it has been running, or how it ended."""
    started = trace.info.get("started")
    if live:
        return f"running for {duration(now - started)}" if started else "running"
    ended = "; ".join(endings(trace.processes))
    took = trace.info.get("seconds")
    after = f" after {duration(took)}" if took is not None else ""
    return ended or f"ended{after}"


def duration(seconds: float) -> str:
    """Return a duration as text: ``45 s``, ``3 min 20 s``, ``2 h 5 min``."""
    whole = max(0, round(seconds))
    if whole < 60:
        return f"{whole} s"
    return f"{whole // 60} min {whole % 60} s" if whole < 3600 else f"{whole // 3600} h {whole % 3600 // 60} min"


def _rate(late: Sequence[_Point]) -> float | None:
    """Return the steps per second after the first of `late`; ``None`` if it is not known.

    Unrecorded steps count as taking the median time of the others without overhead.
    """
    rest = late[1:]
    if not rest:
        return None
    own = median(max(point.seconds - point.watching, 0.0) for point in rest)
    steps = rest[-1].step - late[0].step
    seconds = sum(point.seconds for point in rest) + own * (steps - len(rest))
    return steps / seconds if seconds > 0 else None


def _range(values: Sequence[float]) -> str:
    """Return the smallest and largest value as text, or one if they are equal; empty for none."""
    texts = list(dict.fromkeys(number(value) for value in sorted(values)))
    return texts[0] if len(texts) == 1 else f"{texts[0]} to {texts[-1]}" if texts else ""


def _ranks(trace: Trace, ran: Sequence[Process], now: float) -> list[tuple[str, str, str, str]]:
    """Return (name, step, loss, state) of each process; if there are many, those that failed or lag behind
    come first.
    """
    if not ran:
        return []
    seen = {one.part: one for one in trace.facts.of(RankSeen)}
    rows = []
    for one in ran:
        step, loss = one.steps - 1, one.loss
        mine = trace.ranks.get(one.rank) if one.rank is not None else None
        if mine is not None and len(mine.steps):
            numbers = numbers_of(mine.steps)
            step = max(step, numbers[-1])
            late = (row.loss for row in mine.step_rows(max(0, len(numbers) - 3)))
            loss = next((value for value in reversed([*late]) if value is not None), loss)
        how = ranks.ended(one)
        if one.ended == "running" and (waits := _waits(seen.get(one.part), now)):
            how = waits
        name = f"rank {one.rank}" if one.rank is not None else f"process {one.pid}"
        rows.append((one.ended not in ("failed", "killed"), step, (name, _step(step), _loss(loss), how)))
    if len(rows) > ROWS:
        rows.sort(key=lambda row: row[:2])
    return [row for *_, row in rows]


def _step(step: int) -> str:
    """Return the number of a step as text; ``-`` if there is none (negative)."""
    return f"{step:,}" if step >= 0 else "-"


def _loss(loss: float | None) -> str:
    return number(loss)


def _waits(seen: RankSeen | None, now: float) -> str:
    """Return the operation that a process waits in and for how long, as it last reported; empty if it does not wait.

    :param now: the time, in seconds since 1970.
    """
    never = [wait for wait in (seen.waits if seen is not None else ()) if wait.ended == "never"]
    if not never:
        return ""
    wait = never[-1]
    op = f"{wait.op} in {wait.inside}" if wait.inside else wait.op
    where = "" if wait.site is None else f" at {at_line(short_path(wait.site.file), wait.site.line)}"
    return f"waits in {op}{where} for {duration(now - wait.began)}"


def drawn(frame: Frame, width: int, plain: bool = False, height: int | None = None) -> RenderableType:
    """Format `frame` for a terminal of `width` columns, as an object that rich prints.

    :param plain: use only ASCII.
    :param height: maximum number of lines: findings and ranks are cut to fit.
    """
    room = math.inf if height is None else max(height - 2, 4)
    signs = SIGNS if plain else BLOCKS
    parts: list[RenderableType] = [_head(frame, width), *_curves(frame, width, signs)]
    room -= 2 + (len(parts) - 1)
    below: list[RenderableType] = []
    layers = _layers(frame, width, signs)
    spare = room - (len(frame.standing) + 2 if frame.standing else 2)
    found, took = _findings(frame, width, max(spare / 2 if frame.ranks else spare, min(room, 6)))
    room -= took
    if found:
        below += [Text(), *found]
    if frame.ranks:
        most = ROWS if height is None else min(ROWS, max(2, int(room - len(frame.standing) - 4)))
        below += [Text(), _rank_table(frame, most, width)]
    return Group(*parts, *below, Text(), *layers)


def _cut(text: str, width: int) -> str:
    """Return a text cut to `width` characters."""
    return text if len(text) <= width else text[: max(width - 3, 0)] + "..."


def _head(frame: Frame, width: int) -> RenderableType:
    """Return the two lines at the top: script and state; step, speed, learning rate and overhead."""
    script, name = frame.script or frame.name, frame.name
    left = Text(_cut(short_path(script) if frame.script else script, width // 2), "bold")
    left.append(f"  {frame.state}", "green" if frame.live else "")
    left.truncate(width)
    if name != script and left.cell_len + len(name) + 2 <= width:
        left.append(f"{name:>{width - left.cell_len}}", "dim")
    parts = ["no step yet" if frame.step is None else f"step {frame.step:,}"]
    if frame.rate is not None:
        parts.append(f"{number(frame.rate)} steps/s" if frame.rate < 1000 else f"{frame.rate:,.0f} steps/s")
    if frame.lr:
        parts.append(f"learning rate {frame.lr}")
    if frame.watching and len("   ".join((*parts, frame.watching))) > width:
        parts.append(frame.watching.partition(",")[0])
    elif frame.watching:
        parts.append(frame.watching)
    return Group(left, Text(_cut("   ".join(parts), width)))


def _curves(frame: Frame, width: int, signs: str) -> list[RenderableType]:
    """Return the lines with the curves of the loss and of the gradient norm."""
    rows = []
    clip = "norm, post-clip" if frame.after_clip else "norm, pre-clip"
    for name, values in (("loss", frame.losses), (clip, frame.norms)):
        if not values:
            continue
        line = Text(f"{name:<15}", "dim")
        line.append(f"{number(values[-1]):>9}  ", "" if math.isfinite(values[-1]) else "bold red")
        finite = [v for v in values if math.isfinite(v)]
        ends = f"  {number(min(finite))} to {number(max(finite))}" if finite else ""
        line.append(spark(values, width - line.cell_len - len(ends), signs), "cyan")
        line.append(ends, "dim")
        rows.append(line)
    return [*rows]


def _findings(frame: Frame, width: int, room: float) -> tuple[list[RenderableType], int]:
    """Return the lines of the findings, cut to about `room` lines, and the number of lines used."""
    lines: list[RenderableType] = []
    for at, one in enumerate(frame.told):
        head = Text(f"{one.number}. " if one.number else "! ")
        head.append(one.kind, _SEVERITY[one.severity])
        head.append(f"  {one.text}")
        wrapped = [*_wrapped(head, width)]
        if one.where:
            wrapped.append(Text(_cut(f"   {one.where}", width), "dim"))
        if lines and len(lines) + len(wrapped) + 1 > room:
            rest = len(frame.told) - at
            lines.append(Text(f"   and {counted(rest, 'more finding')}: backprobe show {frame.name}", "dim"))
            break
        lines += wrapped
    return lines, len(lines) + (1 if lines else 0)


def _wrapped(text: Text, width: int) -> Sequence[Text]:
    """Return the lines of `text`; those after the first are indented."""
    lines = text.wrap(console(io.StringIO(), width), width - 3)
    return [line if not i else Text.assemble("   ", line) for i, line in enumerate(lines)]


_HEAD = ("rank", "step", "last loss")


def _rank_table(frame: Frame, most: int, width: int) -> RenderableType:
    """Return the table of the processes, at most `most` rows; the others are summed up in a line."""
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim", pad_edge=False)
    for title in _HEAD:
        table.add_column(title, justify="left" if title == "rank" else "right", no_wrap=True)
    table.add_column("", no_wrap=True)
    room = width - sum(max(len(row[i]) for row in (_HEAD, *frame.ranks)) for i in range(3)) - 6
    for name, step, loss, how in frame.ranks[:most]:
        style = "" if how in ("running", "finished") else "yellow" if how.startswith("waits") else "bold red"
        table.add_row(Text(name), Text(step), Text(loss), Text(_cut(how, room), style))
    rest = frame.ranks[most:]
    hows = few([*{row[3]: None for row in rest}])
    return Group(table, Text(_cut(f"and {len(rest)} more: {hows}", width), "dim")) if rest else table


def _layers(frame: Frame, width: int, signs: str) -> list[RenderableType]:
    """Return a heading and the table of the layers that stand out; a hint if nothing was measured."""
    if not frame.looks:
        how = "is measured with: backprobe run --layer-stats 10 SCRIPT"
        return [Text(f"Layers: nothing was measured{' yet' if frame.live else ''}; it {how}", "dim")]
    looks = f"{counted(frame.looks, 'look')}, the last in step {frame.looked:,}"
    head = Text("Layers that stand out", "bold").append(f"  {looks}", "not bold dim")
    long = width >= 116
    curve = 24 if long else 10
    short = {} if long else _SHORT_WORDS
    labels = [short.get(one.quantity, words(one.quantity)) for one in frame.standing]
    names = max(12, width - curve - max(map(len, labels), default=0) - 26)
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim", pad_edge=False)
    columns: Sequence[tuple[str, Literal["left", "right"]]] = (
        *(("", "left"), ("last", "right"), ("growth", "right")),
        *(("over the run", "left"), ("layer", "left")),
    )
    for title, side in columns:
        table.add_column(title if long or title != "over the run" else "run", justify=side, no_wrap=True)
    beyond = {(alarm.text, alarm.kind) for alarm in frame.told if not alarm.number}
    for label, one in zip(labels, frame.standing, strict=True):
        grown = one.growth
        growth = "" if grown is None or one.quantity not in _GROW else f"x{number(grown)}"
        bad = not math.isfinite(one.value) or any(f" {one.name} is " in text for text, _ in beyond)
        table.add_row(
            Text(label, "dim"),
            Text(value_text(one.quantity, one.value), "bold yellow" if bad else ""),
            Text(growth, "yellow" if grown is not None and grown >= 4 else "dim"),
            Text(spark(one.curve, curve, signs), "cyan"),
            Text(_tail(one.name, names)),
        )
    return [head, table]


def _tail(name: str, width: int) -> str:
    """Return the end of a path, which distinguishes layers."""
    return name if len(name) <= width else "..." + name[3 - width :]


#: Quantities for which growth since the first measurements is meaningful.
_GROW = ("activation_rms", "weight_rms", "attention_logit", "update_ratio", "headroom", "attention_entropy")
_SHORT_WORDS = {
    "adam_ratio": "gradient / Adam's root",
    "attention_logit": "attention logit",
    "attention_entropy": "attention entropy",
    "activation_rms": "activation RMS",
    "weight_rms": "weight RMS",
    "headroom": "room to overflow",
    "router_max": "expert load",
    "router_idle": "idle experts",
    "dead": "zero units",
    "saturated": "saturated",
    "unchanged": "left unchanged",
}
