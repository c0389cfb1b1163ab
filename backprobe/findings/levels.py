"""Alarms: levels that say that a run will diverge, before the loss does.

A level is held against what it was in the first steps, and against an absolute bound: a moving window would follow the
drift. Each rule wants several looks in a row, so that one odd batch is no alarm. ``Monitor`` takes the looks one by one
as they come; the question asks it of those of a whole run.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

from ..records import Finding, FindingSite, Measured, OptimizerSeen
from ..records.statistics import OF
from ..text import number
from .questions import LEARNING, SPOILED, Kind, Topic, question

if TYPE_CHECKING:
    from ..traced import Trace

#: No look before this step counts, and the first looks after it are what levels are held against.
BEGIN, FIRST = 10, 5
#: Looks in a row; the share of the weight that an update has then.
ROW, UPDATE = 5, 0.1
#: By quantity: the level, times what it was, and looks in a row.
GROWN = {"attention_logit": (40.0, 4.0, 3), "activation_rms": (30.0, 8.0, 3), "weight_rms": (0.5, 5.0, 3)}
#: The least part of a half-precision range that is to be left above an activation, as a factor.
HEADROOM = 100.0
#: RMS of gradients over the root of their second moment, of the parameter in the middle.
BEHIND = 2.5
#: What is measured of parameters; all else that is looked at here is of modules.
OF_PARAMETERS = ("update_ratio", "weight_rms", "adam_ratio")
_SAID = {
    "attention_logit": "the greatest attention logit",
    "activation_rms": "the RMS of the activations",
    "weight_rms": "the RMS of the weight",
    "headroom": "the room above the greatest activation",
    "adam_ratio": "the gradient over the root of Adam's second moment",
}


@dataclass(frozen=True)
class Alarm:
    """What was noticed at step ``step``: ``quantity`` of ``name`` has been beyond its bound since step ``since``.
    ``before``: what it was in the first steps."""

    kind: str
    name: str
    quantity: str
    step: int
    since: int
    value: float
    before: float


class Monitor:
    """Takes looks one by one, and says what is new."""

    def __init__(self) -> None:
        #: By quantity and name, the first looks; and since when it is beyond its bound, in how many looks.
        self._curves: dict[str, list[float]] = {}
        self._beyond: dict[str, tuple[int, int]] = {}
        #: Kinds that were told, and parameters that are matrices: those that have a stable rank.
        self._told: set[str] = set()
        self._wide: set[str] = set()

    def add(self, look: Measured) -> list[Alarm]:
        """What `look` gives rise to: of each kind the first in the run, of the layer where it began."""
        found: dict[str, list[Alarm]] = {}
        behind = []
        for key, value in zip(look.names, look.values, strict=True):
            quantity, _, name = key.partition(OF)
            if quantity == "stable_rank":
                self._wide.add(name)
            if look.step < BEGIN:
                continue
            if quantity == "adam_ratio" and name in self._wide:
                behind.append((value, name))
            alarm = self._judged(quantity, name, look.step, value)
            if alarm is not None:
                found.setdefault(alarm.kind, []).append(alarm)
        if behind:
            value, name = max(behind)
            beyond = len(behind) > 1 and median(value for value, _ in behind) > BEHIND
            alarm = self._row("divergence-ahead", "adam_ratio", name, look.step, value, beyond, 2, BEHIND, "")
            if alarm is not None:
                found.setdefault(alarm.kind, []).append(alarm)
        new = {kind: alarms for kind, alarms in found.items() if kind not in self._told}
        self._told.update(new)
        return [min(alarms, key=_first) for alarms in new.values()]

    def _judged(self, quantity: str, name: str, step: int, value: float) -> Alarm | None:
        """Whether one number is beyond its bound for long enough."""
        if quantity == "update_ratio" and name in self._wide:
            return self._row("update-too-large", quantity, name, step, value, value >= UPDATE, ROW, UPDATE)
        if quantity == "headroom":
            return self._row("divergence-ahead", quantity, name, step, value, value < HEADROOM, 3, HEADROOM)
        if quantity not in GROWN or (quantity == "weight_rms" and name not in self._wide):
            return None
        curve = self._curves.setdefault(f"{quantity}{OF}{name}", [])
        if len(curve) < FIRST:
            curve.append(value)
            return None
        before = median(curve)
        level, times, row = GROWN[quantity]
        beyond = value >= level and value >= times * before
        return self._row("divergence-ahead", quantity, name, step, value, beyond, row, before)

    def _row(
        self,
        kind: str,
        quantity: str,
        name: str,
        step: int,
        value: float,
        beyond: bool,
        row: int,
        before: float,
        of: str | None = None,
    ) -> Alarm | None:
        """An alarm where that is the last of `row` looks beyond the bound. `of`: what looks are counted for, if that is
        not `name`."""
        key = f"{quantity}{OF}{name if of is None else of}"
        if not beyond:
            self._beyond.pop(key, None)
            return None
        since, looks = self._beyond.get(key, (step, 0))
        self._beyond[key] = since, looks + 1
        return Alarm(kind, name, quantity, step, since, value, before) if looks + 1 >= row else None


def _first(alarm: Alarm) -> tuple[int, float]:
    """By when it began, then by how far it is."""
    return alarm.since, -alarm.value / max(alarm.before, 1e-30)


def alarms(looks: Iterable[Measured]) -> list[Alarm]:
    """The alarms of a run, in the order in which they came."""
    monitor = Monitor()
    return [alarm for look in looks for alarm in monitor.add(look)]


#: The kinds of alarms, in the order of their rank.
ALARMS = ("update-too-large", "divergence-ahead")


@question(
    Kind("update-too-large", "warning", "updates are a large part of the weights, for many steps", rank=LEARNING + 12),
    Kind("divergence-ahead", "warning", "a level grows that ends in a divergence", after="update-too-large"),
    silenced_by=(SPOILED, "exploding-gradient"),
    topic=Topic("levels", "levels that grow before a run diverges", whole_script=True),
)
def levels(trace: Trace) -> list[Finding]:
    """At most one finding: the first alarm."""
    found = alarms(trace.statistics)
    if not found:
        return []
    alarm = found[0]
    large = alarm.kind == "update-too-large"
    made = trace.facts.of(OptimizerSeen)
    sites = tuple(FindingSite("optimizer", one.site) for one in made if one.site is not None)
    if large:
        title = f"updates of {alarm.name} are {number(100 * alarm.value)}% of it in step {alarm.step}, "
        title += f"and more than {number(100 * UPDATE)}% since step {alarm.since}"
    else:
        title = f"{_SAID[alarm.quantity]} of {alarm.name} is {number(alarm.value)} in step {alarm.step}; "
        title += f"it was {number(alarm.before)}" if alarm.quantity in GROWN else f"its bound is {number(alarm.before)}"
    is_weight = alarm.quantity in OF_PARAMETERS
    return [
        Finding(
            kind=alarm.kind,
            severity="warning",
            title=title,
            confidence="likely" if large else "possible",
            module=alarm.name.rpartition(".")[0] if is_weight else alarm.name,
            parameters=(alarm.name,) if is_weight else (),
            step=alarm.since,
            sites=sites[:1],
            evidence={
                "quantity": alarm.quantity,
                "value": alarm.value,
                "before": alarm.before,
                "since": alarm.since,
                "noticed": alarm.step,
            },
            advice=(
                "Lower the learning rate (of this group, if the others are well), or warm it up over some hundred "
                "steps; healthy updates are about a thousandth of the weight."
                if large
                else "Look at this layer first: lower its learning rate or warm up longer, clip gradients, normalise "
                "queries and keys (QK norm), add weight decay, or keep it in float32. Going back to a checkpoint "
                "before that step and leaving out the batches around it is what people do where it came suddenly."
            ),
        )
    ]
