"""Which steps are looked at, node by node, so that watching takes no more than a person will pay.

Note [The budget]: what may be spent grows with the time that the script takes alone: a share of it, and ``FREE``
seconds at the start, which short runs live on. The first steps, which are looked at closely whatever it costs, are told
apart and not counted. A step whose nodes are recorded is paid from that when it is over; the
next is recorded as soon as what is left would pay for one. Where steps cost more than the share, that is one in so and
so many. How long it is waited is drawn anew each time, so that what takes turns (a critic and its generator, a phase of
training) is not always met at the same place. However little may be spent, one step in ``MOST`` is recorded.

Note [Steps that repeat]: most of what a recorded step costs is noting what made its nodes, and it is the same in each
step whose graph is. So as much as is spent on steps that are recorded whole is spent on others of which the backward
alone is, in which no mode and no hook on modules is on: the graph is walked when the backward begins, and where it is
that of one layout among the last ones, node by node, the lines and modules are those. Where it is none of them, or of
several, the step is not recorded, and for a while those that are are recorded whole. Where all steps can be recorded
whole, all are. What needs to see the forward (checkpoints, second derivatives, hooks on tensors, what is compiled) has
whole steps only.

Note [Kept for what is new]: what begins late shows as something that had not been there before: another number of
nodes, a line that never ran, gradients that are gone. The steps after it are then looked at closely, which costs a
multiple of a recorded step, and some later ones are recorded. So a part of the first seconds (``KEPT``) is not spent on
steps like any other; and what cannot be paid when it comes up waits until it can be, and is not forgotten.

Note [Steps that pass]: of a step that is not recorded, the loss, the calls and some gradients are still looked at, and
a record of it is made. Where steps are so short that this takes more than ``REST`` of what may be spent, some pass:
only what cannot be made up for later is looked at (whether the loss is finite before its graph is used up, how many
nodes were made, what is raised; whether one of the gradients is finite, as long as no more than ``PEEK`` is taken),
and no record is made of them. That is looked at whatever it costs: of steps that are shorter than a few tenths of a
millisecond it takes more than may be spent. So that some are recorded all
the same, no more than ``MOSTLY`` of what may be spent is counted for those that pass. How many pass in a row is drawn
anew each time too. They are counted, and said in the run.

Note [Brief steps]: where steps are long enough to pay for it (``TELL``), a record is made of those that pass too, of
all of a stretch together, with what was noted when each was over: its seconds, its calls and its loss. They take a
tenth to a fifth of what others take of which nothing is recorded, and what that saves is left for steps that are.
A stretch of them takes ``WHILE`` seconds at most: one that goes on is not known yet to whoever looks at the run.

Note [Bad losses in a row]: a run may go on for long after its loss became NaN, and each step tells what the first ones
told. So under a budget ``IN_A_ROW`` backward calls in a row whose loss is not finite are explained. The steps after
them are counted, nothing of them is recorded, and their losses are kept; a finite loss ends that. A ``GradScaler``
whose factor is too large makes such losses on purpose: with one, all are explained as far as the budget goes.
"""

from __future__ import annotations

import math

#: Seconds of our own work that any run has.
FREE = 1.0
#: The part of them that is kept for close looks: Note [Kept for what is new].
KEPT = 0.4
#: Steps in a row of which none is recorded.
MOST = 1000
#: Steps in a row that pass, at most, or as many as take so many seconds: the shorter a step, the more a look costs
#: beside it.
FAR, LONG = 64, 0.1
#: The parts of what may be spent that those take which are not recorded, and pass.
REST, MOSTLY = 0.5, 0.7
#: The part that others may take where they are told of all the same; seconds of a stretch of those.
BRIEF, WHILE = 0.1, 0.5
#: The part that records of those may take: a loss that is kept is worth more than one more step whose nodes are.
TELL = 0.25
#: The share that such steps may take where nodes are looked at in none, and there is no budget.
WATCH = 0.02
#: The part that those that pass may take for gradients to be looked at in them.
PEEK = 0.8
#: Steps that are explained whatever it costs: those after them where it can be paid.
EXPLAINED = 20
#: Backward calls in a row from a loss that is not finite that are explained: Note [Bad losses in a row].
IN_A_ROW = 3


class Budget:
    """Decides step by step.

    :param share: of the time that the script takes alone; ``None``: every step is recorded.
    :param nodes: whether nodes are looked at in any step.
    """

    def __init__(self, share: float | None, nodes: bool = True) -> None:
        self.share, self._nodes = share, nodes
        #: The share for steps of which nothing is recorded.
        self._floor = share if nodes or share is not None else WATCH
        #: Seconds that the script took alone, and those of our own work.
        self.alone = self.spent = 0.0
        #: What a step costs that is recorded whole, of the last ones; ``None`` before one is over that was not looked
        #: at closely. And one of which the backward alone is recorded.
        self.cost: float | None = None
        self.backward: float | None = None
        #: What was spent on steps of both kinds since there is a choice, and how many of the second were recorded.
        self._on_whole = self._on_backward = 0.0
        self.repeated = 0
        #: Whether steps may repeat, as the session knows; the number of steps before which none does, since some were
        #: like none before, and how long that is.
        self.may_repeat = False
        self._whole_until, self._distrust = 0, 4
        #: How many steps were recorded, of how many.
        self.recorded = self.steps = 0
        #: How many of them passed, and no record was made of them; how many were told of.
        self.passed = self.told = 0
        #: Seconds that a record takes of one that passes.
        self._telling = 2e-5
        #: What is left of the seconds that are kept for close looks.
        self._kept = KEPT * FREE
        #: What a step takes alone, what one costs that is not recorded, and one that passes.
        self._length = self._heard = self._pass = 0.0
        #: Of the last stretches of those that passed: seconds of our own work, and steps.
        self._stretches = 0.0, 0.0
        #: What those that passed took beyond their part of what may be spent.
        self._beyond = 0.0
        #: How many steps that are not recorded were explained.
        self.explained = 0
        #: Backward calls in a row from a loss that was not finite, as far as they were explained.
        self._bad_in_a_row = 0
        #: Whether losses that are not finite are counted and no more, how many steps were, and the last of them.
        self.only_counts = False
        self.only_counted, self._last_counted = 0, -1
        #: Whether gradients are looked at in those that pass.
        self.peeks = False
        #: Steps since the last that was recorded, and since the last that was so whole.
        self._since = self._since_whole = 0
        self._patience = 1.0
        self._state = 2024

    def step_over(
        self,
        seconds: float,
        mine: float,
        recorded: bool,
        careful: bool,
        first: bool = False,
        asked: bool = False,
        repeats: bool = False,
        explains: bool = False,
    ) -> None:
        """A step took `seconds`, `mine` of which were our own work. `first`: it is one of those at the start. `asked`:
        it was recorded since something was new. `repeats`: its backward alone was recorded. `explains`: a failure was
        explained in it, which says nothing of what a step costs."""
        self.steps += 1
        self.recorded += recorded
        self.repeated += repeats
        if first:
            return
        self.alone += max(seconds - mine, 0.0)
        self.spent += mine
        self._length = _mean(self._length, max(seconds - mine, 0.0))
        if not recorded and not explains:  # the first one takes much more
            self._heard = _mean(self._heard, mine) if mine > self._heard else 0.5 * (self._heard + mine)
        self._since = 0 if recorded else self._since + 1
        self._since_whole = 0 if recorded and not repeats else self._since_whole + 1
        if recorded:
            self._patience = 1.0 + self._draw()
            if asked:
                self._kept = max(self._kept - mine, 0.0)
            if repeats:
                self._on_backward += mine
                self.backward = mine if self.backward is None else self.backward + 0.2 * (mine - self.backward)
            elif not careful and not explains:
                self._on_whole += mine if self.may_repeat and not self._all_whole else 0.0
                self.cost = mine if self.cost is None else self.cost + 0.2 * (mine - self.cost)

    def was_like_none(self) -> None:
        """A step was to repeat, and its graph is none of those that are known."""
        self._distrust = min(2 * self._distrust, MOST)
        self._whole_until = self.steps + self._distrust

    @property
    def repeats(self) -> bool:
        """Whether the backward alone is recorded of the next step that is."""
        if not self.may_repeat or self._all_whole or self._since_whole >= MOST:
            return False
        return self.steps >= self._whole_until and self._on_backward < self._on_whole

    @property
    def _all_whole(self) -> bool:
        """Whether each step can be recorded whole."""
        if self.share is None or self.cost is None or self.spent < (1.0 - KEPT) * FREE:
            return True
        return self.cost <= self.share * self._length

    def wants(self) -> bool:
        """Whether the next step is to be recorded."""
        if self.share is None or self._since_whole >= MOST:
            return True
        if self.only_counts:
            return False
        left, price = self.left - self._kept, self._price
        return left >= self._patience * price if price else left > 0

    @property
    def _price(self) -> float:
        """Seconds that the next step takes more if it is recorded; 0 where that is not known."""
        return (self.backward if self.repeats and self.backward is not None else self.cost) or 0.0

    @property
    def affords(self) -> bool:
        """Whether a step that is asked for can be paid."""
        return self.left >= 0

    @property
    def explains(self) -> bool:
        """Whether a step that is not recorded and goes wrong is looked into: a run may go on for long after its loss
        is no number any more."""
        return self.explained < EXPLAINED or self.affords

    def bad_loss(self, scaled: bool) -> None:
        """A loss was not finite, and that was explained. `scaled`: a ``GradScaler`` may have made it so."""
        self._bad_in_a_row += 1
        self.only_counts = self._floor is not None and not scaled and self._bad_in_a_row >= IN_A_ROW

    def count_bad_loss(self, step: int) -> None:
        """The loss of `step` was not finite, and that is not explained."""
        if step != self._last_counted:
            self.only_counted, self._last_counted = self.only_counted + 1, step

    def good_loss(self) -> None:
        """A loss was finite."""
        if self._bad_in_a_row:
            self._bad_in_a_row, self.only_counts = 0, False

    @property
    def left(self) -> float:
        """Seconds that may be spent."""
        return math.inf if self.share is None else FREE + self.share * self.alone - (self.spent - self._beyond)

    def tells(self) -> bool:
        """Whether records can be paid of steps that pass."""
        return self._floor is not None and self._telling <= TELL * self._floor * self._length

    def lets_pass(self, tells: bool = False, several: bool = False) -> int:
        """How many steps pass after this one, which was not recorded.

        :param tells: records are made of them.
        :param several: the run has other processes: how far this one is has to be known soon.
        """
        if self._floor is None or not self._heard:
            return 0
        pays = self._floor * self._length
        rest = (BRIEF if tells else REST) * pays
        if self._heard <= rest or (self.share is None and not tells):  # without a budget a record is made of each
            return 0
        if not tells and self._heard <= pays and self.tells():  # long enough for its loss to be kept, in the other way
            return 0
        self.peeks = self._pass <= PEEK * pays
        room, length = rest - self._pass, max(self._length, 1e-6)
        most = (LONG if several else WHILE) / length if tells else max(FAR, LONG / length)
        far = min(most, self._heard / room) if room > 0 else most
        count = max(1, round(far * (0.5 + self._draw())))
        if not self._nodes:
            return count
        missing = self._patience * self._price - (self.left - self._kept)
        if tells and 0 < missing < math.inf:  # until the next one can be recorded
            count = min(count, math.ceil(missing / max(pays - self._pass, 1e-9)))
        return min(count, max(MOST - self._since_whole, 1))

    def telling(self, steps: int, seconds: float) -> None:
        """`steps` steps that have passed were told of, which took `seconds`."""
        self.told += steps
        self.passed -= steps
        self._telling = _mean(self._telling, seconds / steps)

    def have_passed(self, steps: int, seconds: float, mine: float) -> None:
        """`steps` steps have passed, which took `seconds`, `mine` of which were our own work."""
        self.steps += steps
        self.passed += steps
        self._since += steps
        self._since_whole += steps
        alone = max(seconds - mine, 0.0)
        self.alone += alone
        self.spent += mine
        self._beyond += max(mine - MOSTLY * (self.share or 0.0) * alone, 0.0)
        self._length = _mean(self._length, alone / steps)
        # A stretch has a price of its own, which in a short one says nothing of what a step takes.
        self._stretches = 0.9 * self._stretches[0] + mine, 0.9 * self._stretches[1] + steps
        self._pass = self._stretches[0] / self._stretches[1]

    def _draw(self) -> float:
        """A number from 0 to 1. Not from a generator of Python's or torch's: those are the script's."""
        self._state = (1103515245 * self._state + 12345) % 2**31
        return self._state / 2**31


def _mean(before: float, now: float) -> float:
    """Of the last ones."""
    return before + 0.1 * (now - before) if before else now
