"""Alarms: measurements that show that a run will diverge, or trains badly, before the loss does.

Note [Against what a level is held]: a moving window would follow the drift. So each quantity is compared with an
absolute bound, with its value in the first measurements, and with the same quantity of all other matrices. Each rule
requires several consecutive measurements, so that one odd batch raises no alarm. If an extreme value may be intended,
such as attention that concentrates on one position, it is an alarm only if the loss has not fallen.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from statistics import median

from ... import thresholds
from ...records import Measured
from ...records.statistics import OF

#: By quantity: the bound, the least multiple of its early value, and the number of consecutive measurements.
GROWTH_BOUNDS = {
    "attention_logit": (
        thresholds.ATTENTION_LOGIT_BOUND,
        thresholds.ATTENTION_LOGIT_GROWTH,
        thresholds.ATTENTION_LOGIT_LOOKS,
    ),
    "activation_rms": (
        thresholds.ACTIVATION_RMS_BOUND,
        thresholds.ACTIVATION_RMS_GROWTH,
        thresholds.ACTIVATION_RMS_LOOKS,
    ),
    "weight_gain": (
        thresholds.WEIGHT_GAIN_BOUND,
        thresholds.WEIGHT_GAIN_GROWTH,
        thresholds.WEIGHT_GAIN_LOOKS,
    ),
}
#: The same against the very first measurement, up to a step: how a layer changes in its first steps.
INITIAL_GROWTH_BOUNDS = {
    "attention_logit": (
        thresholds.INITIAL_ATTENTION_LOGIT_BOUND,
        thresholds.INITIAL_ATTENTION_LOGIT_GROWTH,
        thresholds.INITIAL_ATTENTION_LOGIT_LOOKS,
        math.inf,
    ),
    "activation_rms": (
        thresholds.INITIAL_ACTIVATION_RMS_BOUND,
        thresholds.INITIAL_ACTIVATION_RMS_GROWTH,
        thresholds.INITIAL_ACTIVATION_RMS_LOOKS,
        thresholds.INITIAL_ACTIVATION_RMS_LAST_STEP,
    ),
}
#: Quantities measured of parameters; the others are of modules, or of the whole run.
OF_PARAMETERS = ("update_ratio", "weight_rms", "weight_gain", "adam_ratio", "stable_rank", "unchanged")
WHOLE = "loss_median"


@dataclass(frozen=True)
class Alarm:
    """A quantity of a layer that has been beyond its bound since step ``since``, noticed at step ``step``.

    ``name`` is the layer; ``before`` is the early value or the bound that the value was compared with.
    """

    kind: str
    name: str
    quantity: str
    step: int
    since: int
    value: float
    before: float


@dataclass
class Levels:
    """The measurements of statistics by layer known so far: the last three, and earlier ones to compare them with."""

    step: int = -1
    #: This measurement: quantity -> name -> value.
    now: dict[str, dict[str, float]] = field(default_factory=dict)
    #: The previous measurement, and the one before it.
    last: dict[str, dict[str, float]] = field(default_factory=dict)
    older: dict[str, dict[str, float]] = field(default_factory=dict)
    #: The very first value of each, and the first ``LEVELS_EARLY_LOOKS`` values from step ``LEVELS_FIRST_STEP`` on.
    first: dict[str, dict[str, float]] = field(default_factory=dict)
    early: dict[str, dict[str, list[float]]] = field(default_factory=dict)
    #: Recent losses, which a new loss is compared with.
    past: dict[str, list[float]] = field(default_factory=dict)
    #: The last known loss.
    loss: float | None = None
    #: Each optimizer's highest learning rate so far.
    rates: dict[str, float] = field(default_factory=dict)
    #: The output modules in this measurement.
    _outputs: set[str] | None = None

    def take(self, look: Measured, parsed: Iterable[tuple[str, str]]) -> None:
        """Add one measurement: shift the previous ones, and update first values, early values, loss and learning rates.

        Values that are not finite are left out.

        :param parsed: quantity and name of each value, in the order of ``look.values``.
        """
        self.step, self.older, self.last, self.now = look.step, self.last, self.now, {}
        self._outputs = None
        for (quantity, name), value in zip(parsed, look.values, strict=True):
            if value - value != 0.0:
                continue
            self.now.setdefault(quantity, {})[name] = value
            self.first.setdefault(quantity, {}).setdefault(name, value)
            if look.step >= thresholds.LEVELS_FIRST_STEP:
                early = self.early.setdefault(quantity, {}).setdefault(name, [])
                if len(early) < thresholds.LEVELS_EARLY_LOOKS:
                    early.append(value)
            if quantity == WHOLE:
                self.loss = value
            if quantity == "lr":
                self.rates[name] = max(value, self.rates.get(name, 0.0))

    def output(self, name: str) -> bool:
        """Return whether a module, or a parameter's module, belongs to the model's output.

        That is the last module with parameters of its own, or a module after it.
        """
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
        """Return whether the growth of a quantity is harmless: targets are large, or the model becomes confident.

        The growth of the model's output is harmless if the loss has not risen; that of another layer if the output is
        larger, has grown more, and the loss has fallen.
        """
        if quantity == "attention_logit":
            return False
        if self.output(name):
            return self.loss_fell(1.0)
        here, first = self.now.get("activation_rms", {}), self.first.get("activation_rms", {})
        last = next(reversed(here), "")
        grew_less = name in here and here[name] <= min(here[last], here[last] * first[name] / max(first[last], 1e-30))
        return grew_less and self.loss_fell(thresholds.LOSS_UNMOVED_SHARE)

    @property
    def wide(self) -> Mapping[str, float]:
        """Matrices: parameters that have a stable rank."""
        return self.first.get("stable_rank", {})

    def matrices(self, quantity: str) -> dict[str, float]:
        """Return the values of `quantity` in this measurement, by parameter, of matrices only."""
        wide = self.wide
        return {name: value for name, value in self.now.get(quantity, {}).items() if name in wide}

    def before(self, quantity: str, name: str) -> float | None:
        """Return the median of a layer's early values of `quantity`; ``None`` until there are ``LEVELS_EARLY_LOOKS`` of
        them.
        """
        early = self.early.get(quantity, {}).get(name, ())
        return median(early) if len(early) == thresholds.LEVELS_EARLY_LOOKS else None

    def loss_is(self, share: float) -> bool:
        """Return whether the loss is above `share` of the first loss."""
        first = self.first.get(WHOLE, {}).get("loss")
        return self.loss is not None and first is not None and self.loss > share * first > 0

    def loss_fell(self, share: float) -> bool:
        """Return whether the loss is at most `share` of the first loss. False if the loss is not positive."""
        first = self.first.get(WHOLE, {}).get("loss")
        return self.loss is not None and first is not None and 0 < self.loss <= share * first

    def rate_fell(self) -> bool:
        """Return whether a learning rate is less than half of its highest value."""
        rates = self.now.get("lr", {})
        return any(value < 0.5 * self.rates[name] for name, value in rates.items())


#: Layers beyond their bound in a measurement: name, value, the value or bound that it was compared with.
Beyond = Iterator[tuple[str, float, float]]


@dataclass(frozen=True)
class Rule:
    """Raises an alarm of `kind` if `beyond` yields a layer in `row` consecutive measurements of `quantity`."""

    kind: str
    quantity: str
    row: int
    beyond: Callable[[Levels], Beyond]


def _large_updates(levels: Levels) -> Beyond:
    """Yield matrices whose update is a large part of the weight."""
    for name, value in _grown_up(levels).items():
        if value >= thresholds.UPDATE_RATIO_BOUND:
            yield name, value, thresholds.UPDATE_RATIO_BOUND


def _updates_apart(levels: Levels) -> Beyond:
    """Yield matrices whose update ratio is far above that of the median matrix."""
    all_ratios = levels.matrices("update_ratio")
    if len(all_ratios) < thresholds.OUTLIER_MIN_MATRICES:
        return
    middle = median(all_ratios.values())
    for name, value in _grown_up(levels).items():
        more = thresholds.OUTPUT_LAYER_FACTOR if levels.output(name) else 1.0
        if value >= more * max(thresholds.UPDATE_RATIO_OUTLIER_MIN, thresholds.UPDATE_RATIO_OUTLIER_FACTOR * middle):
            yield name, value, middle


def _grown_up(levels: Levels) -> dict[str, float]:
    """Return the update ratios of matrices that did not start at zero."""
    ratios, sizes = levels.matrices("update_ratio"), levels.matrices("weight_rms")
    least = thresholds.STARTED_AT_ZERO_SHARE * median(sizes.values()) if sizes else 0.0
    return {name: value for name, value in ratios.items() if sizes.get(name, 0.0) >= least}


def _grows(quantity: str) -> Callable[[Levels], Beyond]:
    """Return a function that yields layers whose `quantity` is above its bound and a multiple of its early value."""
    level, times, _ = GROWTH_BOUNDS[quantity]

    def beyond(levels: Levels) -> Beyond:
        """Yield layers whose quantity is above the bound and a multiple of its early value, unless the growth is
        harmless.
        """
        here = levels.matrices(quantity) if quantity in OF_PARAMETERS else levels.now.get(quantity, {})
        for name, value in here.items():
            before = levels.before(quantity, name)
            if before is None or value < max(level, times * abs(before)) or levels.as_meant(quantity, name):
                continue
            yield name, value, before

    return beyond


def _grew_at_once(quantity: str) -> Callable[[Levels], Beyond]:
    """Return a function that yields layers whose `quantity` is far above its first value, in the first steps."""
    level, times, _, until = INITIAL_GROWTH_BOUNDS[quantity]

    def beyond(levels: Levels) -> Beyond:
        """Yield layers whose quantity is above the bound and a multiple of its first value, up to the last step that
        counts.
        """
        for name, value in levels.now.get(quantity, {}).items():
            first = levels.first[quantity][name]
            large = value >= max(level, times * abs(first)) and levels.step <= until
            if large and not levels.as_meant(quantity, name):
                yield name, value, first

    return beyond


def _more_comes_in(levels: Levels) -> Beyond:
    """Yield the first layer if its input grew, that is, if its output grew by more than the gain of its weight."""
    level, times = thresholds.INPUT_RMS_BOUND, thresholds.INPUT_RMS_GROWTH
    name, value = next(iter(levels.now["activation_rms"].items()))
    weight = f"{name}.weight"
    gain, gain_before = levels.now.get("weight_gain", {}).get(weight), levels.before("weight_gain", weight)
    before = levels.before("activation_rms", name)
    if gain and gain_before and before is not None and value / gain >= max(level, times * before / gain_before):
        yield name, value, before


def _outgrows(levels: Levels) -> Beyond:
    """Yield matrices whose RMS is large and has grown far more than that of the median matrix."""
    here = levels.matrices("weight_rms")
    first = levels.first.get("weight_rms", {})
    least = thresholds.STARTED_AT_ZERO_SHARE * median(first[name] for name in here) if here else 0.0
    growth = {name: value / first[name] for name, value in here.items() if first[name] > least}
    if len(growth) < thresholds.OUTLIER_MIN_MATRICES - 1:
        return
    middle = median(growth.values())
    for name, grown in growth.items():
        more = thresholds.OUTPUT_LAYER_FACTOR if levels.output(name) else 1.0
        is_large = here[name] >= thresholds.MATRIX_GROWTH_MIN_RMS and grown >= thresholds.MATRIX_GROWTH_FACTOR
        if is_large and grown >= more * thresholds.MATRIX_GROWTH_OUTLIER_FACTOR * middle:
            yield name, here[name], first[name]


def _gains(levels: Levels) -> Beyond:
    """Yield, in the first steps, layers whose gain is far above the median layer's."""
    here = levels.now["weight_gain"]
    bound, times = thresholds.INITIAL_GAIN_BOUND, thresholds.INITIAL_GAIN_OUTLIER_FACTOR
    middle = median(here.values())
    for name, value in here.items():
        if levels.step < thresholds.LEVELS_FIRST_STEP and len(here) > 1 and value >= max(bound, times * middle):
            yield name, value, middle


def _little_room(levels: Levels) -> Beyond:
    """Yield layers whose largest activation is near the maximum of its half-precision type."""
    for name, value in levels.now.get("headroom", {}).items():
        if value < thresholds.ACTIVATION_MIN_HEADROOM:
            yield name, value, thresholds.ACTIVATION_MIN_HEADROOM


def _behind(levels: Levels) -> Beyond:
    """Yield one matrix if gradients are large relative to Adam's second moment: the one with the largest ratio.

    The median of all matrices is compared with the bound.
    """
    here = levels.matrices("adam_ratio")
    if len(here) > 1 and median(here.values()) > thresholds.ADAM_RATIO_BOUND:
        name = max(here, key=here.__getitem__)
        yield name, here[name], thresholds.ADAM_RATIO_BOUND


def _dead(levels: Levels) -> Beyond:
    """Yield layers almost all of whose units are zero for the whole batch."""
    for name, value in levels.now.get("dead", {}).items():
        if value >= thresholds.DEAD_SHARE:
            yield name, value, thresholds.DEAD_SHARE


def _saturated(levels: Levels) -> Beyond:
    """Yield layers almost all of whose units are at the bounds of their tanh or sigmoid."""
    for name, value in levels.now.get("saturated", {}).items():
        if value >= thresholds.SATURATED_SHARE:
            yield name, value, thresholds.SATURATED_SHARE


def _one_place(levels: Levels) -> Beyond:
    """Yield attention layers whose entropy fell to almost zero while the loss is still high."""
    for name, value in levels.now.get("attention_entropy", {}).items():
        first = levels.first["attention_entropy"][name]
        fell = first >= thresholds.ATTENTION_ENTROPY_MIN_FIRST and value <= thresholds.ATTENTION_ENTROPY_SHARE * first
        if value <= thresholds.ATTENTION_ENTROPY_BOUND and fell and levels.loss_is(thresholds.LOSS_HIGH_SHARE):
            yield name, value, first


def _one_place_from_the_start(levels: Levels) -> Beyond:
    """Yield attention layers with an entropy of almost zero while the loss has hardly moved."""
    for name, value in levels.now.get("attention_entropy", {}).items():
        if value <= thresholds.ATTENTION_ENTROPY_BOUND and levels.loss_is(thresholds.LOSS_UNMOVED_SHARE):
            yield name, value, thresholds.ATTENTION_ENTROPY_BOUND


def _one_direction(levels: Levels) -> Beyond:
    """Yield weights whose stable rank fell to almost one, whatever the loss."""
    yield from _ranks_below(levels, thresholds.STABLE_RANK_BOUND)


def _about_one_direction(levels: Levels) -> Beyond:
    """Yield weights whose stable rank fell near one, only if the loss is high.

    A layer before few outputs may learn one direction first.
    """
    if levels.loss_is(thresholds.LOSS_HIGH_SHARE):
        yield from _ranks_below(levels, thresholds.STABLE_RANK_BOUND_AT_HIGH_LOSS)


def _ranks_below(levels: Levels, bound: float) -> Beyond:
    """Yield weights whose stable rank is at most `bound` and a small share of its first value."""
    for name, value in levels.now.get("stable_rank", {}).items():
        first = levels.first["stable_rank"][name]
        if value <= min(bound, thresholds.STABLE_RANK_SHARE * first):
            yield name, value, first


def _hardly_moves(levels: Levels) -> Beyond:
    """Yield matrices that have a gradient and whose updates are tiny relative to their weights.

    Not while the learning rate falls or is warmed up, and only if the loss has hardly moved or other matrices move far
    more.
    """
    ratios = levels.matrices("update_ratio")
    gradients, stuck = levels.now.get("grad_norm", {}), levels.loss_is(thresholds.LOSS_UNMOVED_SHARE)
    if not ratios or levels.rate_fell():
        return
    middle = median(ratios.values())
    for name, value in ratios.items():
        first = levels.before("update_ratio", name)
        rises = first is None or value > 2 * first  # a rate that is warmed up
        if (
            value < thresholds.SLOW_UPDATE_RATIO
            and gradients.get(name, 0.0) > 0
            and not rises
            and (stuck or value < thresholds.SLOW_UPDATE_OUTLIER_SHARE * middle)
        ):
            yield name, value, thresholds.SLOW_UPDATE_RATIO


def _stays(levels: Levels) -> Beyond:
    """Yield matrices with a gradient almost all of whose elements an update leaves unchanged, as rounding does."""
    if levels.rate_fell():
        return
    gradients, norms = levels.now.get("grad_norm", {}), levels.now.get("weight_norm", {})
    for name, value in levels.matrices("unchanged").items():
        last = levels.last.get("weight_norm", {}).get(name, 0.0)
        still = abs(norms.get(name, 0.0) - last) <= thresholds.UNCHANGED_NORM_TOLERANCE * last  # not in this step alone
        if value >= thresholds.UNCHANGED_ELEMENTS_SHARE and gradients.get(name, 0.0) > 0 and still:
            yield name, value, thresholds.UNCHANGED_ELEMENTS_SHARE


def _jumps(levels: Levels) -> Beyond:
    """Yield the whole run if the median loss since the last measurement is far above the earlier ones.

    The name that it yields is the layer that changed with the loss, or "loss". A loss that jumped does not count as an
    earlier one.
    """
    value = levels.now.get(WHOLE, {}).get("loss")
    if value is None or levels.step < thresholds.LEVELS_FIRST_STEP:
        return
    past, worst = levels.past.setdefault(WHOLE, []), levels.past.setdefault("loss_max", [])
    jumped = False
    if len(past) >= thresholds.SPIKE_MIN_LOOKS:
        middle = median(past)
        spread = 1.4826 * median(abs(one - middle) for one in past)
        over = value - middle
        jumped = middle > 0 and over > max(
            thresholds.SPIKE_SPREADS * spread,
            (thresholds.SPIKE_FACTOR - 1) * middle,
            thresholds.SPIKE_SHARE_OF_FIRST * abs(levels.first[WHOLE]["loss"]),
            median(worst) - middle,
        )
        if jumped:
            yield _with_it(levels), value, middle
    if not jumped:  # what it is held against stays what it was while it lasts
        past.append(value)
        worst.append(levels.now.get("loss_max", {}).get("loss", value))
        del past[: -thresholds.SPIKE_LATEST_LOOKS], worst[: -thresholds.SPIKE_LATEST_LOOKS]


def _with_it(levels: Levels) -> str:
    """Return the layer that changed with the loss: the weight that grew most, else the first module whose output grew.

    "loss" if there is none.
    """

    def changed(quantity: str) -> dict[str, float]:
        """Return the layers whose `quantity` grew enough in the last two measurements, with the factor."""
        found: dict[str, float] = {}
        for before, after in ((levels.older, levels.last), (levels.last, levels.now)):
            old = before.get(quantity, {})
            for name, value in after.get(quantity, {}).items():
                if old.get(name) and value / old[name] >= thresholds.SPIKE_LAYER_GROWTH:
                    found[name] = max(found.get(name, 0.0), value / old[name])
        return found

    weights = changed("weight_rms")
    return max(weights, key=weights.__getitem__) if weights else next(iter(changed("activation_rms")), "loss")


RULES = (
    Rule("loss-spike", WHOLE, thresholds.SPIKE_LOOKS, _jumps),
    Rule("update-too-large", "update_ratio", thresholds.UPDATE_RATIO_LOOKS, _large_updates),
    Rule("update-too-large", "update_ratio", thresholds.UPDATE_RATIO_LOOKS, _updates_apart),
    *(Rule("divergence-ahead", quantity, row, _grows(quantity)) for quantity, (*_, row) in GROWTH_BOUNDS.items()),
    *(
        Rule("divergence-ahead", quantity, one[2], _grew_at_once(quantity))
        for quantity, one in INITIAL_GROWTH_BOUNDS.items()
    ),
    Rule("divergence-ahead", "activation_rms", thresholds.INPUT_RMS_LOOKS, _more_comes_in),
    Rule("divergence-ahead", "weight_rms", thresholds.MATRIX_GROWTH_LOOKS, _outgrows),
    Rule("divergence-ahead", "weight_gain", thresholds.INITIAL_GAIN_LOOKS, _gains),
    Rule("divergence-ahead", "headroom", thresholds.ACTIVATION_HEADROOM_LOOKS, _little_room),
    Rule("divergence-ahead", "adam_ratio", thresholds.ADAM_RATIO_LOOKS, _behind),
    Rule("attention-collapse", "attention_entropy", thresholds.ATTENTION_ENTROPY_LOOKS, _one_place),
    Rule("attention-collapse", "attention_entropy", thresholds.STUCK_LOOKS, _one_place_from_the_start),
    Rule("rank-collapse", "stable_rank", thresholds.STABLE_RANK_LOOKS, _one_direction),
    Rule("rank-collapse", "stable_rank", thresholds.STABLE_RANK_LOOKS_AT_HIGH_LOSS, _about_one_direction),
    Rule("dead-units", "dead", thresholds.DEAD_LOOKS, _dead),
    Rule("saturated-units", "saturated", thresholds.SATURATED_LOOKS, _saturated),
    Rule("update-too-small", "update_ratio", thresholds.STUCK_LOOKS, _hardly_moves),
    Rule("update-too-small", "unchanged", thresholds.STUCK_LOOKS, _stays),
)
#: The kinds of alarms, in the order of their rank.
ALARMS = tuple(dict.fromkeys(rule.kind for rule in RULES))


class Monitor:
    """Applies the rules to measurements one by one and returns new alarms."""

    def __init__(self) -> None:
        self._levels = Levels()
        #: For each rule: layer -> (step since which it is beyond its bound, number of measurements).
        self._beyond: list[dict[str, tuple[int, int]]] = [{} for _ in RULES]
        self._told: set[str] = set()
        #: True if a value is beyond its bound and will be an alarm if that lasts.
        self.waits = False
        self._parsed: dict[tuple[str, ...], list[tuple[str, str]]] = {}

    def add(self, look: Measured) -> list[Alarm]:
        """Add a measurement and return the alarms that it raises.

        Each kind is raised once in a run, for the layer where it began. A rule needs its number of consecutive
        measurements.
        """
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
            if rule.quantity not in levels.now or (
                levels.step < thresholds.LEVELS_FIRST_STEP and rule.quantity != "weight_gain"
            ):
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
    """Return quantity and layer (or parameter) of the name of a measured value."""
    quantity, _, of = name.partition(OF)
    return quantity, of


def _first(alarm: Alarm) -> tuple[int, float]:
    """Sort key of alarms: the step at which the alarm began, then the largest factor between the value and its
    reference.
    """
    return alarm.since, -abs(math.log(max(alarm.value, 1e-30) / max(alarm.before, 1e-30)))


def alarms(looks: Iterable[Measured]) -> list[Alarm]:
    """Return the alarms of a run, in the order in which they were raised."""
    monitor = Monitor()
    return [alarm for look in looks for alarm in monitor.add(look)]
