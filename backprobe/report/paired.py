"""The ops of two recorded runs side by side, as columns: inputs and outputs of each op, and their differences."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from ..comparing.align import in_order
from ..comparing.compared import Compared
from ..comparing.estimate import Estimate, eps_of
from ..comparing.text import call
from ..records import Gap, Print, Tape, TapeOp
from .columns import column, norms
from .tables import Sites

#: States of a pair: same bits; other bits, but equal according to float64; different according to float64; in one run
#: only (A or B); other bits, not recomputed; nothing to compare.
SAME, AGREES, DIFFERS, ONLY_A, ONLY_B, BITS, NOTHING = range(7)
PHASES = ("forward", "backward", "optimizer", "sink")
#: Maximum number of characters for the arguments of an op.
_CALL = 400
#: A state, the difference of two values, and the difference according to float64.
_State = tuple[int, float | None, float | None]
Row = tuple[TapeOp | None, TapeOp | None]


class Strings:
    """Texts, each stored once."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def of(self, text: str | None) -> int:
        """Return the number of a text, adding it if it is new; -1 for ``None``."""
        return -1 if text is None else self._numbers.setdefault(text, len(self._numbers))

    def rows(self) -> list[str]:
        """Return all texts, in the order of their numbers."""
        return list(self._numbers)


class Paired:
    """The rows of a comparison: paired ops in one row, in the order in which they ran.

    :param most: maximum number of rows: the suspect and rows that differ have priority.
    """

    def __init__(self, a: Tape, b: Tape, found: Compared, sites: tuple[Sites, Sites], most: int) -> None:
        self.a, self.b, self._found, self._sites = a, b, found, sites
        self._estimate = Estimate(a, b)
        self._strings = Strings()
        rows = list(in_order(a, b, found.partners))
        self.count = len(rows)
        results = [self._apart(*row) for row in rows]
        shown = _shown([state for state, _, _ in results], most, [self._is_suspect(row) for row in rows])
        self.rows = [rows[place] for place in shown]
        self._kept = [results[place] for place in shown]
        self._at = (
            {x.index: n for n, (x, _) in enumerate(self.rows) if x is not None},
            {y.index: n for n, (_, y) in enumerate(self.rows) if y is not None},
        )

    @property
    def suspect(self) -> int:
        """The row of the suspect op, or -1."""
        return next((n for n, row in enumerate(self.rows) if self._is_suspect(row)), -1)

    def document(self) -> dict[str, object]:
        """Return the document for the page."""
        numbers = {name: array("i") for name in ("start", "phase", "state")}
        sides = [
            {name: array("i") for name in ("name", "module", "call", "step", "site", "inner", "node", "arguments")}
            for _ in range(2)
        ]
        tensors = _Tensors(self._strings)
        for (x, y), (state, _, _) in zip(self.rows, self._kept, strict=True):
            some = x if x is not None else y
            assert some is not None
            numbers["start"].append(len(tensors))
            numbers["phase"].append(PHASES.index(some.phase))
            numbers["state"].append(state)
            for op, sites, side in zip((x, y), self._sites, sides, strict=True):
                for name, value in self._op(op, sites).items():
                    side[name].append(value)
            self._tensors(x, y, tensors)
        numbers["start"].append(len(tensors))
        return {
            "count": self.count,
            "suspect": self.suspect,
            **{name: column("i", values) for name, values in numbers.items()},
            "distance": norms(distance for _, distance, _ in self._kept),
            "exact": norms(exact for _, _, exact in self._kept),
            "a": {name: column("i", values) for name, values in sides[0].items()},
            "b": {name: column("i", values) for name, values in sides[1].items()},
            "tensors": tensors.document(),
            "flow": self._flow(),
            "strings": self._strings.rows(),
        }

    def losses(self) -> list[dict[str, object]]:
        """Return by step the sum of the values from which backward calls began, in each run; ``None`` if unknown."""
        found = []
        for one, two in zip(self.a.steps, self.b.steps, strict=False):
            loss = [_loss(tape, step["step"]) for tape, step in ((self.a, one), (self.b, two))]
            found.append({"a": one["step"], "b": two["step"], "loss": loss})
        return found

    # Parts

    def _op(self, op: TapeOp | None, sites: Sites) -> dict[str, int]:
        """Return the numbers that describe an op in a row; all are -1 if the run does not have it."""
        if op is None:
            return dict.fromkeys(("name", "module", "call", "step", "site", "inner", "node", "arguments"), -1)
        told = call(op) if op.phase != "sink" else ""
        told = told if len(told) <= _CALL else told[: _CALL - 1] + "…"
        of = self._strings.of
        return {
            "name": of(op.name),
            "module": of(op.module),
            "call": op.call,
            "step": op.step,
            "site": sites.of(op.site),
            "inner": sites.stack((op.inner,))[0] if op.inner is not None else -1,
            "node": of(op.node) if op.node else -1,
            "arguments": of(told),
        }

    def _tensors(self, x: TapeOp | None, y: TapeOp | None, tensors: _Tensors) -> None:
        """Add the inputs of two paired ops, then their outputs."""
        given = [op.inputs if op is not None else () for op in (x, y)]
        for slot in range(max(map(len, given))):
            one, two = (side[slot] if slot < len(side) else None for side in given)
            both = [taken.value if taken is not None else None for taken in (one, two)]
            state, error, _ = self._state(both[0], both[1], self._gap("slots", x, slot), x, y)
            froms = [
                at.get(taken.last, -1) if taken is not None and not (taken.outside and taken.writer is None) else -1
                for taken, at in zip((one, two), self._at, strict=True)
            ]
            names = [taken.name if taken is not None else "" for taken in (one, two)]
            tensors.add(0, state, error, self._prints(both), froms, names)
        gave = [op.outputs if op is not None else () for op in (x, y)]
        for k in range(max(map(len, gave))):
            both = [side[k] if k < len(side) else None for side in gave]
            state, error, _ = self._state(both[0], both[1], self._gap("outputs", x, k), x, y)
            tensors.add(1, state, error, self._prints(both), [-1, -1], ["", ""])

    def _prints(self, values: Sequence[int | None]) -> list[Print | None]:
        """Return the fingerprints of a value in both runs; ``None`` where there is no value."""
        tapes = (self.a, self.b)
        return [tape.prints[v] if v is not None else None for tape, v in zip(tapes, values, strict=True)]

    def _gap(self, what: str, x: TapeOp | None, number: int) -> Gap | None:
        """Return the difference, computed in float64, of an input or output of a paired op; ``None`` if it was not
        computed.

        :param what: "slots" for inputs, "outputs" for outputs.
        """
        judged = self._found.judged
        if judged is None or x is None:
            return None
        gaps = judged.slots if what == "slots" else judged.outputs
        return gaps.get((x.index, number))

    def _apart(self, x: TapeOp | None, y: TapeOp | None) -> _State:
        """Return the state of a row, the difference of the outputs, and their difference according to float64.

        The worst over all outputs; for a final result (sink), or an op without outputs, over its inputs.
        """
        if x is None or y is None:
            return (ONLY_B if x is None else ONLY_A), None, None
        if x.outputs or y.outputs:
            what, mine, other = "outputs", list(x.outputs), list(y.outputs)
        else:
            what, mine, other = "slots", [t.value for t in x.inputs], [t.value for t in y.inputs]
        found: list[_State] = []
        for k in range(max(len(mine), len(other))):
            if k >= len(mine) or k >= len(other):
                found.append((DIFFERS, None, None))
            else:
                found.append(self._state(mine[k], other[k], self._gap(what, x, k), x, y))
        states = [state for state, _, _ in found if state != NOTHING]
        worst = next((s for s in (DIFFERS, BITS, AGREES, SAME) if s in states), NOTHING)
        distances = [distance for _, distance, _ in found if distance is not None]
        exact = [off for _, _, off in found if off is not None]
        return worst, max(distances, default=None), max(exact, default=None)

    def _state(
        self, mine: int | None, other: int | None, gap: Gap | None, x: TapeOp | None, y: TapeOp | None
    ) -> _State:
        """Return the state of two values of a row, their estimated difference, and that computed in float64.

        :param mine, other: numbers of the values in the two runs.
        """
        if x is None or y is None:
            return (ONLY_B if x is None else ONLY_A), None, None
        if mine is None or other is None:
            return NOTHING, None, None
        if self.a.prints[mine].hash == self.b.prints[other].hash:
            return SAME, 0.0, 0.0
        error = self._estimate.error(mine, other)
        if gap is not None and gap.differs is not None:
            return (DIFFERS if gap.differs else AGREES), error, gap.error
        if self._found.judged is None and self._found.blame is not None:
            return (DIFFERS if self._estimate.gap(mine, other).differs else BITS), error, None
        return BITS, error, None

    def _is_suspect(self, row: Row) -> bool:
        """Return whether a row has the op that is blamed for the difference."""
        blame = self._found.suspect
        return blame is not None and any(
            op is not None and named is not None and op.index == named.index
            for op, named in zip(row, (blame.a, blame.b), strict=True)
        )

    def _flow(self) -> dict[str, object]:
        """Return by step and phase the row of each module's last result that both runs have, in forward order."""
        last: dict[tuple[int, str, str], int] = {}
        for number, (x, y) in enumerate(self.rows):
            if x is None or y is None or x.phase not in ("forward", "backward") or not x.outputs or not y.outputs:
                continue
            value = x.outputs[0]
            if value is None or y.outputs[0] is None or not eps_of(self.a.prints[value]):
                continue
            key = (x.step, x.phase, x.module)
            last.pop(key, None)
            last[key] = number
        forward: dict[tuple[int, str], int] = {}
        for step, phase, module in last:
            if phase == "forward":
                forward.setdefault((step, module), len(forward))
        far = len(forward)
        order = sorted(last, key=lambda k: (k[0], k[1] == "backward", forward.get((k[0], k[2]), far)))
        return {
            "step": column("i", [key[0] for key in order]),
            "phase": column("i", [PHASES.index(key[1]) for key in order]),
            "row": column("i", [last[key] for key in order]),
        }


class _Tensors:
    """The inputs and outputs of ops, as columns."""

    def __init__(self, strings: Strings) -> None:
        self._strings = strings
        self._kind, self._state = array("i"), array("i")
        self._distance: list[float | None] = []
        self._sides: list[dict[str, Any]] = [
            {"word": array("i"), "norm": [], "bad": array("i"), "from": array("i"), "name": array("i")}
            for _ in range(2)
        ]

    def __len__(self) -> int:
        return len(self._kind)

    def add(
        self,
        kind: int,
        state: int,
        distance: float | None,
        prints: Sequence[Print | None],
        froms: Sequence[int],
        names: Sequence[str],
    ) -> None:
        """Add a tensor of both runs.

        :param kind: 0 for an input of an op, 1 for an output.
        """
        self._kind.append(kind)
        self._state.append(state)
        self._distance.append(distance)
        for side, one, where, name in zip(self._sides, prints, froms, names, strict=True):
            side["word"].append(-1 if one is None else self._strings.of(_word(one)))
            side["norm"].append(None if one is None else one.norm)
            side["bad"].append(0 if one is None else min(one.bad, 2**31 - 1))
            side["from"].append(where)
            side["name"].append(self._strings.of(name) if name else -1)

    def document(self) -> dict[str, object]:
        """Return the tensors as columns for the page."""
        made: dict[str, object] = {"kind": column("B", self._kind), "state": column("B", self._state)}
        made["distance"] = norms(self._distance)
        for which, side in zip("ab", self._sides, strict=True):
            made[which] = {
                name: norms(values) if name == "norm" else column("i", values) for name, values in side.items()
            }
        return made


def _word(one: Print) -> str:
    """Return shape and dtype of a value as text."""
    return f"{'x'.join(map(str, one.shape)) or 'number'} {one.dtype}"


def _shown(states: Sequence[int], most: int, suspects: Sequence[bool]) -> list[int]:
    """Return the indices of the rows to keep, at most `most`: the suspect, then rows that differ, then the first
    others.
    """
    if len(states) <= most:
        return list(range(len(states)))
    rank = {DIFFERS: 1, ONLY_A: 1, ONLY_B: 1}
    order = sorted(range(len(states)), key=lambda n: (0 if suspects[n] else rank.get(states[n], 2), n))
    return sorted(order[:most])


def _loss(tape: Tape, step: int) -> float | None:
    """Return the sum of the values from which the backward calls of a step began; ``None`` if unknown."""
    total, found = 0.0, False
    for op, after in pairwise(tape.ops):
        if op.step != step or op.name.partition(".")[0] != "ones_like" or after.phase != "backward" or not op.inputs:
            continue
        value = op.inputs[0].value
        if value is None or any(n != 1 for n in tape.prints[value].shape):
            return None
        one = tape.prints[value]
        # The sketch of a single number is the number itself; zero has no sketch.
        total += float("nan") if one.norm is None else one.sketch[0] if one.sketch else 0.0
        found = True
    return total if found else None
