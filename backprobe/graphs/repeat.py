"""Detection of repeated blocks: consecutive groups of items with equal structure and connections."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from .tree import Item, Level, Link


@dataclass(frozen=True, slots=True)
class Repeated:
    """A repetition: `times` groups of `period` items, from item `start` on. ``times`` is 1 for a single group."""

    start: int
    period: int = 1
    times: int = 1

    @property
    def end(self) -> int:
        """The position after the last item of the repetitions."""
        return self.start + self.period * self.times


def runs(level: Level, labels: Sequence[object], longest: int = 64) -> list[Repeated]:
    """Split the items of `level` into repetitions and single items, which cover it in order.

    A greedy pass takes, at each position, the repetition that covers most items.

    :param labels: of the items: equal for those that may be folded.
    :param longest: the maximum number of items in a group.
    """
    items = level.items
    made: dict[int, list[Link]] = defaultdict(list)
    for link in level.links:
        made[link.user].append(link)
    outside: dict[int, list[int]] = defaultdict(list)
    for item, position in level.outside:
        outside[item].append(position)
    found: list[Repeated] = []
    at = 0
    while at < len(items):
        best = Repeated(at)
        for period in range(1, min(longest, (len(items) - at) // 2) + 1):
            if labels[at] != labels[at + period]:
                continue
            times = 1
            while (
                at + (times + 1) * period <= len(items)
                and labels[at : at + period] == labels[at + times * period : at + (times + 1) * period]
            ):
                times += 1
            if times * period <= best.period * best.times or times < 2:
                continue
            times = _alike(made, outside, at, period, times)
            if times > 1 and times * period > best.period * best.times and _worth(items, at, period, times):
                best = Repeated(at, period, times)
        found.append(best)
        at = best.end
    return found


def _worth(items: list[Item], at: int, period: int, times: int) -> bool:
    """Return whether a run is worth folding: two adjacent single nodes are not."""
    calls = any(item.call >= 0 for item in items[at : at + period])
    return calls or times > 2


def _alike(made: dict[int, list[Link]], outside: dict[int, list[int]], at: int, period: int, times: int) -> int:
    """Return how many of the groups, counted from the first, are connected in the same way.

    The first group may take its inputs from anywhere outside, so only its inner links are compared with the second
    group; the other groups are compared with the second, ignoring which items before the run inputs come from.
    """

    def shape(group: int, since: int) -> list[tuple[int, int, int, int]]:
        """Return the links of a group's items, relative to the group; those to items before `since` without their
        maker.
        """
        base = at + group * period
        rows = []
        for k in range(period):
            for link in made[base + k]:
                offset = base + k - link.maker if link.maker >= since else -(10**9)
                rows.append((k, link.user_at, offset, link.maker_at if link.maker >= since else -1))
        return sorted(rows)

    def ends(group: int) -> list[tuple[int, int]]:
        """Return the positions of inputs that no item of the group makes, or of all inputs: equal in each group."""
        base = at + group * period
        rows = [(k, link.user_at) for k in range(period) for link in made[base + k]]
        return sorted(rows + [(k, position) for k in range(period) for position in outside[base + k]])

    if ends(0) != ends(1):
        return 1
    inner = [[r for r in shape(g, at + g * period) if r[2] > -(10**9)] for g in (0, 1)]
    if inner[0] != inner[1]:
        return 1
    second = shape(1, at)
    for group in range(2, times):
        if shape(group, at) != second:
            return group
    return times
