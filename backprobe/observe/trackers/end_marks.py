"""Detects end marks that are never learned: the id that ends a row of tokens pads it, too, and is no target.

Note [End marks and padding]: an id that ends all rows and is never a target may be mere padding. It is an end mark,
too, in one of three cases:

- A mask of the script counts the first of the ids at the end of each row as a token, and the rest as padding.
- In each batch the longest row, which needs no padding, ends with exactly one, and batches have several lengths.
- Code of the script that draws tokens stops at this id.

The last two need rows that end with different tokens before it: an id that all rows have there is the end mark.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from types import FrameType
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from ... import thresholds
from ...ops import canonical, canonical_names, info
from ...records import EndNeverLearned, Site, Step
from ...source.frames import CodeLocation
from ...source.stop_ids import stop_line
from ...source.targets import blanking_lines, padding_id_lines
from ...torch_internals import private
from ...torch_internals.saved_by_nodes import class_targets, saved_tensors
from ..backward.active_backward import ActiveBackward
from ..forward.followed_tensors import FollowedTensors
from ..forward.oplog import op_name
from ..forward.torch_call_recorder import Op
from ..tracker import Tracker
from ..tracker_context import TrackerContext
from .token_targets import MAX_IDS, is_readable, score_positions, token_sequences

if TYPE_CHECKING:
    from ...torch_internals.walk import LiveGraph

#: Maximum number of backward calls whose targets are read.
MAX_CALLS = 16
#: The most tensors of a step that may be masks, and the most tensors of ids that are kept as they were compared.
MAX_MASKS, MAX_COMPARED = 32, 8
_LOOKUP, _LOSS = "EmbeddingBackward0", "NllLoss"
#: The most reshapes between losses and the product that leaves some of them out, and the name of the product.
MAX_RESHAPES, _PRODUCT = 4, canonical("mul")
#: Operations that write one value where a mask is true.
_BLANKS = canonical_names("setitem masked_fill where")


class _Compared(NamedTuple):
    """A copy of a tensor of ids that the script compared with one id."""

    ids: torch.Tensor
    token: int


class _Rows(NamedTuple):
    """The tokens that a batch of scores is to predict.

    :ivar tokens: the tokens, shape (rows, positions). ``learned``: which of them are targets that count.
    :ivar complete: these are all of them. Otherwise the target of the last position was left out, since nothing tells
        which token it was.
    """

    tokens: torch.Tensor
    learned: torch.Tensor
    complete: bool


@dataclass(frozen=True)
class _Call:
    """How the rows of one backward call end.

    :ivar token: the id that ends all rows and is no target; -1 if there is none.
    :ivar rows: the number of rows that end with it. ``width``: their length; ``padded``: how many end with several.
    :ivar exact: the longest row ends with exactly one.
    :ivar masked: a mask counts the first one in each row as a token, and the others as padding.
    """

    complete: bool
    token: int = -1
    rows: int = 0
    width: int = 0
    padded: int = 0
    exact: bool = False
    masked: bool = False


class EndMarkTracker(Tracker):
    """Tracker of ids that end and pad rows of tokens, in recorded calls on the CPU: Note [End marks and padding]."""

    def __init__(self, context: TrackerContext) -> None:
        """Start without calls."""
        self._context, self._frames = context, context.frames
        self._calls: list[_Call] = []
        self._read = self._step = 0
        #: The class that the loss ignores; ``None`` if weights leave targets out.
        self._ignored: int | None = None
        #: Whether the rows of a call cannot end with a mark that is never learned.
        self._over = False
        #: Tokens before the first end mark, at most two, and the line that stops at it.
        self._last: set[int] = set()
        self._stop: Site | None = None
        # In inspected steps: tensors that may be masks, ids that were compared, and the results of the comparisons.
        self._masks: dict[int, torch.Tensor] = {}
        self._compared: deque[_Compared] = deque(maxlen=MAX_COMPARED)
        self._equal: FollowedTensors[int] = FollowedTensors()
        #: An id and the value that replaced it -> the line of the script that did so; ``None`` in a library. If the
        #: value is ``None``: the line that compared ids with it.
        self._blanked: dict[tuple[int, int | None], CodeLocation | None] = {}

    def step_ended(self, step: Step) -> None:
        """Forget the masks of the step: the next one may not be recorded."""
        self._masks.clear()

    def step_begins(self, step: int, inspecting: bool) -> None:
        """Forget compared ids if the step is not inspected: a batch may have been made ahead of an inspected step."""
        if not inspecting or self._over:
            self._forget()

    def observing_pauses(self) -> None:
        """Forget all tensors."""
        self._forget()

    def _forget(self) -> None:
        """Forget all tensors."""
        self._masks.clear()
        self._compared.clear()
        self._equal.clear()

    def op_inspected(self, op: Op) -> None:
        """Keep what may be a mask, copy ids that are compared with one id, and note where such ids are replaced."""
        if op.optimizing or self._over or private.in_transform():
            return
        tensors = [one for one in op.tensors() if _may_be_mask(one)]
        if not tensors:
            return
        for one in tensors:
            self._masks.pop(id(one), None)
            self._masks[id(one)] = one
        while len(self._masks) > MAX_MASKS:
            del self._masks[next(iter(self._masks))]
        known = self._equal.of(tensors)
        numbers = [one for one in op.args if type(one) is int]
        if known and numbers and canonical(op_name(op.func)) in _BLANKS:
            self._note_line(op, known[0], numbers[0])
        elif _may_be_mask(op.out) and op.out.dtype is torch.bool:
            if known:
                self._equal.put(op.out, known[0])
            elif len(op.args) == 2 and numbers and numbers[0] >= 0 and is_readable(tensors[0]):
                self._note_comparison(op, tensors[0], numbers[0])

    def _note_comparison(self, op: Op, ids: torch.Tensor, token: int) -> None:
        """Copy `ids` if the result of an op tells which of them are `token`: they may be replaced next."""
        out = op.out
        if ids.shape != out.shape or ids.dtype is torch.bool:
            return
        with private.measuring():
            equal = ids == token
            if torch.equal(out, equal) or torch.equal(out, ~equal):
                self._compared.append(_Compared(ids.clone(), token))
                self._equal.put(out, token)
                self._note_line(op, token, None)

    def _note_line(self, op: Op, token: int, value: int | None) -> None:
        """Note the line of the script that replaces an id by a value, or that compares ids with it."""
        known = (token, value)
        if self._blanked.get(known) is None:
            self._blanked[known] = self._frames.spot_of_op(op.frame) if self._frames.is_user(op.frame.f_code) else None

    def graph_walked(self, running: ActiveBackward, frame: FrameType) -> None:
        """Read how the rows of tokens of a loss end, in the first calls that have both tokens and targets."""
        plan = running.graph.plan
        if self._over or self._read >= MAX_CALLS or _LOOKUP not in plan.distinct:
            return
        losses = [i for i, name in enumerate(plan.names) if name.startswith(_LOSS)]
        if not losses:
            return
        self._read += 1
        with private.disable_function_modes(), private.hide_ops(), torch.no_grad():
            self._read_rows(running.graph, losses, frame)

    def _read_rows(self, graph: LiveGraph, losses: list[int], frame: FrameType) -> None:
        """Read the rows of the first loss whose targets are the next tokens of a sequence."""
        sequences = token_sequences(graph)
        for i in losses:
            targets, ignored = class_targets(graph.nodes[i])
            if targets is None or not is_readable(targets):
                continue
            taken, counted = score_positions(graph.nodes[i]), _counted(graph, i, targets)
            for ids in sequences:
                rows = _next_tokens(ids, targets, ignored, counted, taken, self._compared)
                if rows is not None:
                    self._ignored = ignored if counted is None else None
                    self._judge(rows, ids, frame)
                    return

    def _judge(self, rows: _Rows, ids: torch.Tensor, frame: FrameType) -> None:
        """Add the call with these rows, and stop if they show that there is nothing to find."""
        call = self._call_of(rows, ids)
        others = {one.token for one in self._calls if one.token >= 0}
        learned = any(bool(((rows.tokens == token) & rows.learned).any()) for token in others)
        if learned or (call.token < 0 and call.complete) or (call.token >= 0 and others - {call.token}):
            self._over = True
            self._forget()
            return
        if call.token >= 0 and not others:
            self._step = self._context.steps.index
            self._stop = self._stop_at(call.token, frame)
        self._calls.append(call)

    def _call_of(self, rows: _Rows, ids: torch.Tensor) -> _Call:
        """Return how the rows of a call end."""
        tokens, learned, complete = rows
        token = int(tokens[0, -1])
        is_end = tokens == token
        if learned[:, -1].any() or not is_end[:, -1].all() or (is_end & learned).any():
            return _Call(complete)
        ends = _trailing(is_end)
        width = tokens.shape[1]
        has_text = ends < width
        last = (width - 1 - ends).clamp(min=0)[:, None]
        has_text &= learned.gather(1, last)[:, 0]  # rows whose last token is learned
        if not has_text.any():
            return _Call(complete)
        self._last.update(tokens.gather(1, last)[has_text, 0].unique()[:2].tolist())
        ends = ends[has_text]
        return _Call(
            complete,
            token,
            rows=len(ends),
            width=width,
            padded=int((ends > 1).sum()),
            exact=int(ends.min()) == 1,
            masked=any(_counts_first(mask, ids, token) for mask in self._masks.values()),
        )

    def _stop_at(self, token: int, frame: FrameType | None) -> Site | None:
        """Return the line of the running script that stops to draw tokens at `token`, if there is one."""
        globals_by_file: dict[str, dict[str, object]] = {}
        while frame is not None:
            if self._frames.is_user(frame.f_code):
                globals_by_file.setdefault(frame.f_code.co_filename, frame.f_globals)
            frame = frame.f_back
        lines = (stop_line(file, names, token) for file, names in globals_by_file.items())
        return next((line for line in lines if line is not None), None)

    def records(self) -> Iterator[EndNeverLearned]:
        """Yield a record if an id ends and pads all rows that were read, and is more than padding."""
        calls = self._calls
        if any(one.token < 0 for one in calls):
            calls = [one for one in calls if one.complete]
        rows, masked = sum(one.rows for one in calls), sum(one.masked for one in calls)
        if self._over or len(calls) < thresholds.END_MARKS_MIN_CALLS or rows < thresholds.END_MARKS_MIN_ROWS:
            return
        is_masked = masked >= thresholds.END_MARKS_MIN_MASKED_CALLS
        is_exact = all(one.exact for one in calls) and len({one.width for one in calls}) > 1
        is_padding = any(one.padded for one in calls) and len(self._last) > 1
        if not is_masked and not (is_padding and (is_exact or self._stop is not None)):
            return
        token = calls[0].token
        blanked = self._frames.site(self._blanked.get((token, self._ignored)))
        yield EndNeverLearned(
            token,
            self._ignored,
            blanked,
            () if blanked is not None else self._likely_lines(token),
            self._stop,
            is_masked,
            *(rows, len(calls), self._step),
        )

    def _likely_lines(self, token: int) -> tuple[Site, ...]:
        """Return lines that may be why targets are left out, if no such line was observed."""
        files = self._frames.users_files()
        if (token, self._ignored) in self._blanked:  # in a library
            return padding_id_lines(files)
        lines = blanking_lines(files, self._ignored) if self._ignored is not None else ()
        return lines or padding_id_lines(files)


def _may_be_mask(value: Any) -> bool:
    """Return whether a value is a matrix of ids or a mask, on the CPU and not too large."""
    if type(value) is not torch.Tensor or value.dim() != 2 or value.is_floating_point() or value.is_complex():
        return False
    return value.is_cpu and not private.is_unsafe_to_read(value) and 0 < value.numel() <= MAX_IDS


def _trailing(is_end: torch.Tensor) -> torch.Tensor:
    """Return how many elements are true at the end of each row."""
    return is_end.flip(1).long().cumprod(1).sum(1)


def _counted(graph: LiveGraph, i: int, targets: torch.Tensor) -> torch.Tensor | None:
    """Return which targets of the loss node `i` have a weight: that of their class, or a factor of their losses.

    ``None`` if there are no such weights.
    """
    weight = dict(saved_tensors(graph.nodes[i])).get("weight")
    if weight is not None and weight.is_cpu and not private.is_unsafe_to_read(weight):
        return weight[targets.clamp(0, len(weight) - 1)].reshape(-1) != 0
    for j, name in enumerate(graph.plan.names):
        if info(name).name != _PRODUCT:
            continue
        for node, _ in graph.nodes[j].next_functions:
            for _ in range(MAX_RESHAPES):
                if node is None or node is graph.nodes[i] or not info(type(node).__name__).reshapes:
                    break
                node = node.next_functions[0][0]
            if node is not graph.nodes[i]:
                continue
            for _, factor in saved_tensors(graph.nodes[j]):
                if not factor.requires_grad and factor.numel() == targets.numel() and is_readable(factor):
                    return factor.reshape(-1) != 0
    return None


def _next_tokens(
    ids: torch.Tensor,
    targets: torch.Tensor,
    ignored: int,
    counted: torch.Tensor | None,
    taken: tuple[int, int, int] | None,
    compared: deque[_Compared],
) -> _Rows | None:
    """Return the tokens that the scores of a sequence are to predict; ``None`` if the targets are not the next tokens.

    :param ids: shape (rows, positions). ``targets``: any shape whose elements are by row.
    :param counted: which targets have a weight, in the order of `targets`; ``None`` if all have.
    :param taken: which positions of the sequence the scores are, if not all: the first, how many, and of how many.
    """
    begin, count, length = taken or (0, ids.shape[1], ids.shape[1])
    if ids.shape[1] != length or targets.numel() != len(ids) * count or count < 2:
        return None
    given = targets.reshape(len(ids), count)
    learned, known = given != ignored, ids[:, begin + 1 : begin + 1 + count]
    if counted is not None:
        learned &= counted.reshape(len(ids), count)
    shown = known.shape[1]
    counts = int(learned[:, :shown].sum())
    if (
        counts < thresholds.TOKEN_TARGETS_MIN_IDS
        or int(((given[:, :shown] == known) & learned[:, :shown]).sum()) < thresholds.TOKEN_TARGETS_MIN_SHARE * counts
    ):
        return None
    for one in compared:
        for shift in (0, 1):  # the labels, as they are given to the loss, or not shifted yet
            tokens = one.ids[:, shift:]
            width = tokens.shape[1]
            if len(tokens) != len(ids) or count - width not in (0, shift):
                continue
            mine = learned[:, :width]
            if bool(((given[:, :width] == tokens) | ~mine).all()) and not bool(learned[:, width:].any()):
                return _Rows(tokens, mine, True)
    if shown < count and bool((given[:, -1] == ignored).all()) and ignored < 0:
        return _Rows(known, learned[:, :shown], False)
    return _Rows(torch.cat([known, given[:, shown:]], 1), learned, True)


def _counts_first(mask: torch.Tensor, ids: torch.Tensor, token: int) -> bool:
    """Return whether a mask counts the text of each row and the first `token` after it, and no other `token` around."""
    if mask.shape != ids.shape or not bool(((mask == 0) | (mask == 1)).all()):
        return False
    is_end = ids == token
    mixed = is_end[:, -1] & ~is_end.all(1)
    if not bool(mixed.any()):
        return False
    is_end, counted = is_end[mixed], mask[mixed] == 1
    positions = torch.arange(ids.shape[1])
    first = ids.shape[1] - _trailing(is_end)[:, None]
    before = _trailing(is_end.flip(1))[:, None]
    inside = (positions >= before) & (positions <= first)
    outside = (positions > first) | (positions < before - 1)  # the last one before the text may begin it
    if not bool(outside.any()):
        return False
    return any(bool(one[inside].all()) and not bool(one[outside].any()) for one in (counted, ~counted))
