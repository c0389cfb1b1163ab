"""Alarms: levels that say that a run will diverge, or trains badly, before the loss does.

Note [Against what a level is held]: a moving window would follow the drift. So a level is held against an absolute
bound, against what it was in the first looks, and against its like: the same quantity of all matrices. Each rule wants
several looks in a row, so that one odd batch is no alarm. Where a level may be as it is meant, as attention that looks
at one place, the loss decides: it is an alarm only where the loss has not come down.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from statistics import median

from ..records import Measured
from ..records.statistics import OF

#: No look before this step counts, but for ``weight_gain``; the median of so many looks after it, and the very first
#: one, are what levels are held against.
BEGIN, FIRST = 10, 5
#: Looks in a row; the share of the weight that an update has then.
ROW, UPDATE = 5, 0.1
#: The same beside others: the share, and how many times that of the matrix in the middle, of at least so many.
APART, TIMES, LIKE = 0.01, 10.0, 4
#: A matrix that is smaller than this share of the one in the middle began at zero: its updates are large beside it.
SMALL = 0.1
#: By quantity: the level, times what it was, and looks in a row.
GROWN = {"attention_logit": (40.0, 4.0, 3), "activation_rms": (30.0, 8.0, 3), "weight_gain": (8.0, 5.0, 3)}
#: The same against the very first look, up to a step: what a layer makes in its first steps.
AT_ONCE = {"attention_logit": (40.0, 10.0, 3, math.inf), "activation_rms": (8.0, 25.0, 3, 200)}
#: A matrix that grows: its RMS, times what it was, times the growth of the one in the middle; the last twice over of
#: what the model puts out with, which grows as it becomes sure.
OUTGROWN, OUTPUT = (0.3, 4.0, 3.0), 2.0
#: RMS of what comes into the first layer, and times what it was.
INPUT = (1.0, 8.0)
#: By how much a layer may multiply the RMS of what comes in, and times that of the one in the middle.
GAIN = (8.0, 5.0)
#: The least part of a half-precision range that is to be left above an activation, as a factor.
HEADROOM = 100.0
#: The share of a weight's norm up to which it has stayed as it was since the last look.
STILL = 1e-5
#: What a level is, times that of the last look, that is named with a jump of the loss.
WITH_IT = 3.0
#: RMS of gradients over the root of their second moment, of the parameter in the middle.
BEHIND = 5.0
#: Shares of units, and looks in a row.
DEAD, SATURATED = (0.9, 5), (0.8, 5)
#: Entropy of attention in nats, as a share of the first look's, which was at least so much.
ENTROPY = (0.05, 0.1, 0.5)
#: The stable rank of a collapsed matrix; of one where that is no matter of taste; as a share of what it was.
RANK = (1.3, 1.05, 0.25)
#: The share of the loss of the first looks above which it has not come down, and has not moved.
DOWN, MOVED = 0.6, 0.9
#: The share of the weight that an update is to have, the share of elements that may stay as they were, and for how
#: many looks; as a share of the matrix in the middle.
MOVES, STAYS, LONG, SLOWEST = 1e-5, 0.95, 12, 0.01
#: Of a jump of the loss: the looks that it is held against, at least and at most; how many times their spread; how many
#: times their middle; what share of the loss of the first looks.
JUMP = (8, 12, 6.0, 1.5, 0.1)
#: What is measured of parameters; all else that is looked at here is of modules, or of the whole run.
OF_PARAMETERS = ("update_ratio", "weight_rms", "weight_gain", "adam_ratio", "stable_rank", "unchanged")
WHOLE = "loss_median"


@dataclass(frozen=True)
class Alarm:
    """What was noticed at step ``step``: ``quantity`` of ``name`` has been beyond its bound since step ``since``.
    ``before``: what it was in the first steps, or what it is held against."""

    kind: str
    name: str
    quantity: str
    step: int
    since: int
    value: float
    before: float


@dataclass
class Levels:
    """What is known when a look has come."""

    step: int = -1
    #: Of this look: by quantity and name.
    now: dict[str, dict[str, float]] = field(default_factory=dict)
    #: Of the one before, and of the one before that.
    last: dict[str, dict[str, float]] = field(default_factory=dict)
    older: dict[str, dict[str, float]] = field(default_factory=dict)
    #: Of the very first look at each, and the first ones from ``BEGIN`` on.
    first: dict[str, dict[str, float]] = field(default_factory=dict)
    early: dict[str, dict[str, list[float]]] = field(default_factory=dict)
    #: The last ones of what is held against its own past.
    past: dict[str, list[float]] = field(default_factory=dict)
    #: The last loss that was known.
    loss: float | None = None
    #: The greatest of each optimizer's rate so far.
    rates: dict[str, float] = field(default_factory=dict)
    #: Modules that the model puts out with, in this look.
    _outputs: set[str] | None = None

    def take(self, look: Measured, parsed: Iterable[tuple[str, str]]) -> None:
        self.step, self.older, self.last, self.now = look.step, self.last, self.now, {}
        self._outputs = None
        for (quantity, name), value in zip(parsed, look.values, strict=True):
            if value - value != 0.0:
                continue
            self.now.setdefault(quantity, {})[name] = value
            self.first.setdefault(quantity, {}).setdefault(name, value)
            if look.step >= BEGIN:
                early = self.early.setdefault(quantity, {}).setdefault(name, [])
                if len(early) < FIRST:
                    early.append(value)
            if quantity == WHOLE:
                self.loss = value
            if quantity == "lr":
                self.rates[name] = max(value, self.rates.get(name, 0.0))

    def output(self, name: str) -> bool:
        """Whether a module, or the one that a parameter is of, is what the model puts out with: the last one that has
        a parameter of its own, or what comes behind it."""
        sizes = self.now.get("weight_rms", {})
        module = name.rpartition(".")[0] if name in sizes else name
        if self._outputs is None:
            owners = {parameter.rpartition(".")[0] for parameter in sizes}
            self._outputs = set()
            for last in reversed(self.now.get("activation_rms", {})):
                self._outputs.add(last)
                if last in owners:
                    break
        return module in self._outputs

    def as_meant(self, quantity: str, name: str) -> bool:
        """Whether it grows because targets are large, or the model becomes sure: this is what the model puts out with,
        and the loss has not risen; or what it puts out has grown more and is larger, and the loss has fallen. Between
        norms, and where the loss does not fall, growth is not meant."""
        if quantity == "attention_logit":
            return False
        if self.output(name):
            return self.loss_fell(1.0)
        here, first = self.now.get("activation_rms", {}), self.first.get("activation_rms", {})
        last = next(reversed(here), "")
        grew_less = name in here and here[name] <= min(here[last], here[last] * first[name] / max(first[last], 1e-30))
        return grew_less and self.loss_fell(MOVED)

    @property
    def wide(self) -> Mapping[str, float]:
        """Matrices: those that have a stable rank."""
        return self.first.get("stable_rank", {})

    def matrices(self, quantity: str) -> dict[str, float]:
        wide = self.wide
        return {name: value for name, value in self.now.get(quantity, {}).items() if name in wide}

    def before(self, quantity: str, name: str) -> float | None:
        """What it was in the first looks; ``None`` while those come."""
        early = self.early.get(quantity, {}).get(name, ())
        return median(early) if len(early) == FIRST else None

    def loss_is(self, share: float) -> bool:
        """Whether the loss is above that share of the one of the first look."""
        first = self.first.get(WHOLE, {}).get("loss")
        return self.loss is not None and first is not None and self.loss > share * first > 0

    def loss_fell(self, share: float) -> bool:
        """Whether the loss is at most that share of the one of the first look. Of one below zero nothing is known."""
        first = self.first.get(WHOLE, {}).get("loss")
        return self.loss is not None and first is not None and 0 < self.loss <= share * first

    def rate_fell(self) -> bool:
        """Whether the learning rate is less than half of what it was."""
        rates = self.now.get("lr", {})
        return any(value < 0.5 * self.rates[name] for name, value in rates.items())


#: What is beyond its bound in a look: the name, the value, what it is held against.
Beyond = Iterator[tuple[str, float, float]]


@dataclass(frozen=True)
class Rule:
    """`kind` is given where `beyond` names a layer in `row` looks in a row. `quantity`: what that is."""

    kind: str
    quantity: str
    row: int
    beyond: Callable[[Levels], Beyond]


def _large_updates(levels: Levels) -> Beyond:
    for name, value in _grown_up(levels).items():
        if value >= UPDATE:
            yield name, value, UPDATE


def _updates_apart(levels: Levels) -> Beyond:
    all_ratios = levels.matrices("update_ratio")
    if len(all_ratios) < LIKE:
        return
    middle = median(all_ratios.values())
    for name, value in _grown_up(levels).items():
        more = OUTPUT if levels.output(name) else 1.0
        if value >= more * max(APART, TIMES * middle):
            yield name, value, middle


def _grown_up(levels: Levels) -> dict[str, float]:
    """Shares of the weight that updates have, of matrices that did not begin at zero."""
    ratios, sizes = levels.matrices("update_ratio"), levels.matrices("weight_rms")
    least = SMALL * median(sizes.values()) if sizes else 0.0
    return {name: value for name, value in ratios.items() if sizes.get(name, 0.0) >= least}


def _grows(quantity: str) -> Callable[[Levels], Beyond]:
    level, times, _ = GROWN[quantity]

    def beyond(levels: Levels) -> Beyond:
        here = levels.matrices(quantity) if quantity in OF_PARAMETERS else levels.now.get(quantity, {})
        for name, value in here.items():
            before = levels.before(quantity, name)
            if before is None or value < max(level, times * abs(before)) or levels.as_meant(quantity, name):
                continue
            yield name, value, before

    return beyond


def _grew_at_once(quantity: str) -> Callable[[Levels], Beyond]:
    level, times, _, until = AT_ONCE[quantity]

    def beyond(levels: Levels) -> Beyond:
        for name, value in levels.now.get(quantity, {}).items():
            first = levels.first[quantity][name]
            large = value >= max(level, times * abs(first)) and levels.step <= until
            if large and not levels.as_meant(quantity, name):
                yield name, value, first

    return beyond


def _more_comes_in(levels: Levels) -> Beyond:
    """The first layer puts out many times what it did, and its weight has not grown so much."""
    level, times = INPUT
    name, value = next(iter(levels.now["activation_rms"].items()))
    weight = f"{name}.weight"
    gain, gain_before = levels.now.get("weight_gain", {}).get(weight), levels.before("weight_gain", weight)
    before = levels.before("activation_rms", name)
    if gain and gain_before and before is not None and value / gain >= max(level, times * before / gain_before):
        yield name, value, before


def _outgrows(levels: Levels) -> Beyond:
    here = levels.matrices("weight_rms")
    first = levels.first.get("weight_rms", {})
    least = SMALL * median(first[name] for name in here) if here else 0.0
    growth = {name: value / first[name] for name, value in here.items() if first[name] > least}
    if len(growth) < LIKE - 1:
        return
    level, times, apart = OUTGROWN
    middle = median(growth.values())
    for name, grown in growth.items():
        more = OUTPUT if levels.output(name) else 1.0
        if here[name] >= level and grown >= times and grown >= more * apart * middle:
            yield name, here[name], first[name]


def _gains(levels: Levels) -> Beyond:
    """In the first look: what the first steps make of it blows up all others."""
    here = levels.now["weight_gain"]
    bound, times = GAIN
    middle = median(here.values())
    for name, value in here.items():
        if levels.step < BEGIN and len(here) > 1 and value >= max(bound, times * middle):
            yield name, value, middle


def _little_room(levels: Levels) -> Beyond:
    for name, value in levels.now.get("headroom", {}).items():
        if value < HEADROOM:
            yield name, value, HEADROOM


def _behind(levels: Levels) -> Beyond:
    """Of all matrices together: told of the one that is furthest."""
    here = levels.matrices("adam_ratio")
    if len(here) > 1 and median(here.values()) > BEHIND:
        name = max(here, key=here.__getitem__)
        yield name, here[name], BEHIND


def _dead(levels: Levels) -> Beyond:
    for name, value in levels.now.get("dead", {}).items():
        if value >= DEAD[0]:
            yield name, value, DEAD[0]


def _saturated(levels: Levels) -> Beyond:
    for name, value in levels.now.get("saturated", {}).items():
        if value >= SATURATED[0]:
            yield name, value, SATURATED[0]


def _one_place(levels: Levels) -> Beyond:
    bound, share, least = ENTROPY
    for name, value in levels.now.get("attention_entropy", {}).items():
        first = levels.first["attention_entropy"][name]
        if value <= bound and first >= least and value <= share * first and levels.loss_is(DOWN):
            yield name, value, first


def _one_place_from_the_start(levels: Levels) -> Beyond:
    for name, value in levels.now.get("attention_entropy", {}).items():
        if value <= ENTROPY[0] and levels.loss_is(MOVED):
            yield name, value, ENTROPY[0]


def _one_direction(levels: Levels) -> Beyond:
    yield from _ranks_below(levels, RANK[1])


def _about_one_direction(levels: Levels) -> Beyond:
    """While the loss comes down a layer before few outputs may learn one direction first."""
    if levels.loss_is(DOWN):
        yield from _ranks_below(levels, RANK[0])


def _ranks_below(levels: Levels, bound: float) -> Beyond:
    for name, value in levels.now.get("stable_rank", {}).items():
        first = levels.first["stable_rank"][name]
        if value <= min(bound, RANK[2] * first):
            yield name, value, first


def _hardly_moves(levels: Levels) -> Beyond:
    ratios = levels.matrices("update_ratio")
    gradients, stuck = levels.now.get("grad_norm", {}), levels.loss_is(MOVED)
    if not ratios or levels.rate_fell():
        return
    middle = median(ratios.values())
    for name, value in ratios.items():
        first = levels.before("update_ratio", name)
        rises = first is None or value > 2 * first  # a rate that is warmed up
        if value < MOVES and gradients.get(name, 0.0) > 0 and not rises and (stuck or value < SLOWEST * middle):
            yield name, value, MOVES


def _stays(levels: Levels) -> Beyond:
    if levels.rate_fell():
        return
    gradients, norms = levels.now.get("grad_norm", {}), levels.now.get("weight_norm", {})
    for name, value in levels.matrices("unchanged").items():
        last = levels.last.get("weight_norm", {}).get(name, 0.0)
        still = abs(norms.get(name, 0.0) - last) <= STILL * last  # not in this step alone
        if value >= STAYS and gradients.get(name, 0.0) > 0 and still:
            yield name, value, STAYS


def _jumps(levels: Levels) -> Beyond:
    value = levels.now.get(WHOLE, {}).get("loss")
    if value is None or levels.step < BEGIN:
        return
    past, worst = levels.past.setdefault(WHOLE, []), levels.past.setdefault("loss_max", [])
    least, most, spreads, times, share = JUMP
    jumped = False
    if len(past) >= least:
        middle = median(past)
        spread = 1.4826 * median(abs(one - middle) for one in past)
        over = value - middle
        jumped = middle > 0 and over > max(
            spreads * spread, (times - 1) * middle, share * abs(levels.first[WHOLE]["loss"]), median(worst) - middle
        )
        if jumped:
            yield _with_it(levels), value, middle
    if not jumped:  # what it is held against stays what it was while it lasts
        past.append(value)
        worst.append(levels.now.get("loss_max", {}).get("loss", value))
        del past[:-most], worst[:-most]


def _with_it(levels: Levels) -> str:
    """The layer that changed with the loss: the weight that did most, or the first module whose output did."""

    def changed(quantity: str) -> dict[str, float]:
        found: dict[str, float] = {}
        for before, after in ((levels.older, levels.last), (levels.last, levels.now)):
            old = before.get(quantity, {})
            for name, value in after.get(quantity, {}).items():
                if old.get(name) and value / old[name] >= WITH_IT:
                    found[name] = max(found.get(name, 0.0), value / old[name])
        return found

    weights = changed("weight_rms")
    return max(weights, key=weights.__getitem__) if weights else next(iter(changed("activation_rms")), "loss")


RULES = (
    Rule("loss-spike", WHOLE, 1, _jumps),
    Rule("update-too-large", "update_ratio", ROW, _large_updates),
    Rule("update-too-large", "update_ratio", ROW, _updates_apart),
    *(Rule("divergence-ahead", quantity, row, _grows(quantity)) for quantity, (*_, row) in GROWN.items()),
    *(Rule("divergence-ahead", quantity, one[2], _grew_at_once(quantity)) for quantity, one in AT_ONCE.items()),
    Rule("divergence-ahead", "activation_rms", 3, _more_comes_in),
    Rule("divergence-ahead", "weight_rms", 3, _outgrows),
    Rule("divergence-ahead", "weight_gain", 1, _gains),
    Rule("divergence-ahead", "headroom", 3, _little_room),
    Rule("divergence-ahead", "adam_ratio", 2, _behind),
    Rule("attention-collapse", "attention_entropy", 5, _one_place),
    Rule("attention-collapse", "attention_entropy", LONG, _one_place_from_the_start),
    Rule("rank-collapse", "stable_rank", 1, _one_direction),
    Rule("rank-collapse", "stable_rank", 2, _about_one_direction),
    Rule("dead-units", "dead", DEAD[1], _dead),
    Rule("saturated-units", "saturated", SATURATED[1], _saturated),
    Rule("update-too-small", "update_ratio", LONG, _hardly_moves),
    Rule("update-too-small", "unchanged", LONG, _stays),
)
#: The kinds of alarms, in the order of their rank.
ALARMS = tuple(dict.fromkeys(rule.kind for rule in RULES))


class Monitor:
    """Takes looks one by one, and says what is new."""

    def __init__(self) -> None:
        self._levels = Levels()
        #: By rule and name: since when it is beyond its bound, in how many looks.
        self._beyond: list[dict[str, tuple[int, int]]] = [{} for _ in RULES]
        self._told: set[str] = set()
        #: Something is beyond its bound that is an alarm if that lasts.
        self.waits = False
        self._parsed: dict[tuple[str, ...], list[tuple[str, str]]] = {}

    def add(self, look: Measured) -> list[Alarm]:
        """What `look` gives rise to: of each kind the first in the run, of the layer where it began."""
        parsed = self._parsed.get(look.names)
        if parsed is None:
            if len(self._parsed) > 100:
                self._parsed.clear()
            parsed = self._parsed[look.names] = [_split(name) for name in look.names]
        levels = self._levels
        before_this = levels.step + 1  # losses are of all steps since the last look
        levels.take(look, parsed)
        found: dict[str, list[Alarm]] = {}
        self.waits = False
        for rule, beyond in zip(RULES, self._beyond, strict=True):
            if rule.quantity not in levels.now or (levels.step < BEGIN and rule.quantity != "weight_gain"):
                continue
            rows = {}
            for name, value, before in rule.beyond(levels):
                key = "" if rule.quantity == "adam_ratio" else name  # of all together
                since, looks = beyond.get(key, (before_this if rule.quantity == WHOLE else look.step, 0))
                rows[key] = since, looks + 1
                self.waits = self.waits or (looks + 1 < rule.row and rule.kind not in self._told)
                if looks + 1 >= rule.row and rule.kind not in self._told:
                    alarm = Alarm(rule.kind, name, rule.quantity, look.step, since, value, before)
                    found.setdefault(rule.kind, []).append(alarm)
            beyond.clear()
            beyond.update(rows)
        self._told.update(found)
        return [min(alarms, key=_first) for alarms in found.values()]


def _split(name: str) -> tuple[str, str]:
    quantity, _, of = name.partition(OF)
    return quantity, of


def _first(alarm: Alarm) -> tuple[int, float]:
    """By when it began, then by how far it is."""
    return alarm.since, -abs(math.log(max(alarm.value, 1e-30) / max(alarm.before, 1e-30)))


def alarms(looks: Iterable[Measured]) -> list[Alarm]:
    """The alarms of a run, in the order in which they came."""
    monitor = Monitor()
    return [alarm for look in looks for alarm in monitor.add(look)]
