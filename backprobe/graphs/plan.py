"""The structure of an autograd graph as flat lists, and what can be derived from it. No torch.

Note [Nodes that are hooked]: Only nodes that compute are hooked. A node that only reshapes gives out the values that
came in, and the engine's rule (``engine_order``) tells when such a node and the accumulators ran.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set

from ..ops import info
from .order import Schedule, borders, by_walk, sources

ACCUMULATE = "torch::autograd::AccumulateGrad"


class Plan:
    """Data derived from a graph's structure alone, shared by the steps that build the same graph."""

    __slots__ = (
        "_borders",
        "_normalising",
        "counts",
        "distinct",
        "hooked",
        "leaves",
        "met",
        "names",
        "numbers",
        "starts",
        "targets",
        "to_leaf",
    )

    def __init__(self, names: list[str], counts: list[int], targets: list[int], numbers: list[int]) -> None:
        self.names, self.counts, self.targets, self.numbers = names, counts, targets, numbers
        #: The names without repetition.
        self.distinct = frozenset(names)
        starts = [0]
        for count in counts:
            starts.append(starts[-1] + count)
        self.starts = starts
        seen: dict[tuple[int, int], int] = {}
        for edge in zip(targets, numbers, strict=True):
            seen[edge] = seen.get(edge, 0) + 1
        #: Nodes that receive several gradients: the engine's sum is measured there.
        self.met = frozenset(i for (i, _), count in seen.items() if count > 1 and i >= 0)
        self.hooked = [i for i, name in enumerate(names) if name != ACCUMULATE and not info(name).reshapes]
        self.leaves = [i for i, name in enumerate(names) if name == ACCUMULATE]
        alone = set(self.leaves) - self.met
        #: Nodes that are the only producer for an accumulator: their gradient may become ``.grad``, so it is not held.
        self.to_leaf = frozenset(i for i in self.hooked if any(t in alone for t in targets[starts[i] : starts[i + 1]]))

        self._borders: list[tuple[int, int]] | None = None
        self._normalising: list[int] | None = None

    def borders(self, width: int) -> list[tuple[int, int]]:
        """Return the edges into a deeper band of depth; see ``order.borders``. The result is kept: `width` must not
        change.
        """
        if self._borders is None:
            self._borders = borders(self.starts, self.targets, width)
        return self._borders

    @property
    def normalising(self) -> list[int]:
        """The nodes of batch normalisations."""
        if self._normalising is None:
            self._normalising = [i for i, name in enumerate(self.names) if "BatchNorm" in name]
        return self._normalising

    def edges(self, i: int) -> list[tuple[int, int] | None]:
        """Return the edges of a node: for each, the node that it goes to and that node's input number, or ``None``."""
        a, b = self.starts[i], self.starts[i + 1]
        pairs = zip(self.targets[a:b], self.numbers[a:b], strict=True)
        return [None if to < 0 else (to, number) for to, number in pairs]

    def fits(self, other: tuple[list[str], list[int], list[int], list[int]]) -> bool:
        """Return whether a graph, given as names, counts, targets and numbers, has the structure of this plan."""
        return (self.names, self.counts, self.targets, self.numbers) == other


def needed_for(plan: Plan, inputs: Iterable[int], accumulate: bool) -> set[int]:
    """Return the nodes that the engine runs if only the gradients of `inputs` are asked for.

    :param accumulate: the inputs' own nodes run too (``backward(inputs=)``); otherwise their gradients are captured.
    """
    into: dict[int, list[int]] = {}
    for i in range(len(plan.names)):
        for edge in plan.edges(i):
            if edge is not None:
                into.setdefault(edge[0], []).append(i)
    wanted = set(inputs)
    needed = set(wanted) if accumulate else set()
    stack = list(wanted)
    seen = set(wanted)
    while stack:
        for parent in into.get(stack.pop(), ()):
            needed.add(parent)
            if parent not in seen:
                seen.add(parent)
                stack.append(parent)
    return needed


def engine_order(plan: Plan, seqs: Sequence[int], needed: Set[int] | None = None) -> list[int]:
    """Return the order in which the engine runs the nodes on one thread.

    Of the nodes whose producers have all run it takes the one with the highest sequence number. Accumulators have the
    highest there is; among equals the order is not determined, and this function uses the order of the walk.
    """
    schedule = Schedule(plan.starts, plan.targets, by_walk(seqs), sources(plan.starts, plan.targets), needed)
    order = []
    while (i := schedule.next) is not None:
        order.append(i)
        schedule.ran(i)
    return order


def running_node(
    plan: Plan, seqs: Sequence[int], finished: Sequence[int], needed: Set[int] | None
) -> tuple[int | None, bool]:
    """Return the hooked node that was running when the engine raised, and whether that is certain.

    `finished` are the hooked nodes that ended; see Note [Nodes that are hooked]. Nodes without a hook before the first
    unfinished hooked one are assumed to have run: a reshape or an accumulator does not raise, unless a hook on it does.
    """
    done = set(finished)
    hooked = set(plan.hooked)
    expected = [i for i in engine_order(plan, seqs, needed) if i in hooked]
    certain = expected[: len(finished)] == list(finished)
    for i in expected:
        if i not in done:
            return i, certain
    return None, False
