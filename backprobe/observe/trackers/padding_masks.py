"""Finds masks that hide the tokens of a sequence and leave its padding visible.

Note [Inverted padding masks]: an embedding with a padding row tells which ids are padding. A mask for the same batch is
inverted if it leaves exactly the padding visible, in every row that has both padding and tokens. Masks are compared in
closely inspected steps; a place at which the mask hides the padding, too, starts from zero.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from ... import thresholds
from ...ops import canonical
from ...records import InvertedMask
from ...source.frames import CodeLocation
from ...source.roots import ModuleCallRef
from ...torch_internals import private
from ..forward.followed_tensors import RESHAPES, FollowedTensors
from ..forward.oplog import op_name
from ..forward.torch_call_recorder import Op
from ..tracker import Tracker
from ..tracker_context import TrackerContext

_Tensor = torch.Tensor
_LOOKUP, _FILL = canonical("embedding"), canonical("masked_fill")
#: Attention as a whole: its mask is an argument of this name, or in this place.
_ATTENTION, _MASK_POSITION = canonical("scaled_dot_product_attention"), 3
_MULTI_HEAD = canonical("multi_head_attention_forward")
#: Maximum number of lookups that are kept of a step, of ids of one, of elements of a mask, and of places.
MAX_LOOKUPS, MAX_IDS, MAX_MASK, MAX_PLACES = 8, 100_000, 1 << 24, 200


class _Lookup(NamedTuple):
    """A lookup of sequences: the padding row, which ids are padding, and which rows have tokens, too."""

    row: int
    padding: torch.Tensor
    mixed: torch.Tensor


@dataclass
class _Place:
    """A place that uses a mask.

    :ivar made: the place that made the mask; ``where``: the module call. ``first`` and ``last``: steps with an inverted
        mask, ``steps`` their number, ``rows`` the rows that were compared in them.
    """

    made: CodeLocation | None = None
    where: ModuleCallRef | None = None
    padding_row: int = 0
    first: int = 0
    last: int = -1
    steps: int = 0
    rows: int = 0


class PaddingMaskTracker(Tracker):
    """Tracker of masks in closely inspected steps: Note [Inverted padding masks]."""

    def __init__(self, context: TrackerContext) -> None:
        """Start without places."""
        self._context, self._frames = context, context.frames
        self._places: dict[tuple[CodeLocation | None, str], _Place] = {}
        # Of the running step: lookups, and masks with the places that made them.
        self._lookups: list[_Lookup] = []
        self._masks: FollowedTensors[CodeLocation | None] = FollowedTensors()

    def step_begins(self, step: int, inspecting: bool) -> None:
        """Forget the tensors of the last step."""
        self._forget()

    def observing_pauses(self) -> None:
        """Forget the tensors of the running step."""
        self._forget()

    def _forget(self) -> None:
        """Forget the lookups and masks of a step."""
        self._lookups.clear()
        self._masks.clear()

    def op_inspected(self, op: Op) -> None:
        """Keep lookups, follow masks, and compare the mask of an attention with the lookups before it."""
        if op.optimizing or private.in_transform():
            return
        name = canonical(op_name(op.func))
        if name == _LOOKUP:
            self._keep_lookup(op)
            return
        if self._lookups and (found := _mask_of(op, name)) is not None:
            with private.measuring():
                self._compare(op, op_name(op.func).strip("_"), *found)
        self._follow(op, name)

    def _follow(self, op: Op, name: str) -> None:
        """Note the line of the script that made a mask: it is boolean, or was computed from such a tensor."""
        out = op.out
        if type(out) is not _Tensor or out.requires_grad or out.dim() < 2:
            return
        origins, is_user = self._masks.of(op.tensors()), self._frames.is_user(op.frame.f_code)
        if origins and (name in RESHAPES or not is_user):
            self._masks.put(out, origins[0])
        elif is_user and (origins or out.dtype is torch.bool):
            self._masks.put(out, self._frames.spot_of_op(op.frame))

    def _keep_lookup(self, op: Op) -> None:
        """Keep which ids of a lookup of sequences are padding, if any row has both padding and tokens."""
        ids = next((one for one in op.tensors() if not one.is_floating_point()), None)
        row = op.kwargs.get("padding_idx", op.args[2] if len(op.args) > 2 else None)
        if ids is None or type(row) is not int or row < 0 or ids.dim() != 2 or not 0 < ids.numel() <= MAX_IDS:
            return
        if not ids.is_cpu or private.is_unsafe_to_read(ids):
            return
        with private.measuring():
            padding = ids == row
            for one in (padding, padding.t()):  # sequences are rows, or columns
                mixed = one.any(1) & ~one.all(1)
                if bool(mixed.any()):
                    self._lookups.append(_Lookup(row, one, mixed))
        del self._lookups[: -2 * MAX_LOOKUPS]

    def _compare(self, op: Op, name: str, mask: torch.Tensor, visible: torch.Tensor) -> None:
        """Compare the positions that a mask leaves visible with the padding of the lookups."""
        known = (self._frames.spot_of_op(op.frame), name)
        inverted: _Lookup | None = None
        for lookup in self._lookups:
            mine = _aligned(visible, lookup.padding)
            if mine is None:
                continue
            seen, padding = mine[lookup.mixed], lookup.padding[lookup.mixed]
            if torch.equal(seen, ~padding):
                self._places.pop(known, None)
                return
            if torch.equal(seen, padding):
                inverted = lookup
        place, step = self._places.get(known), self._context.steps.index
        if inverted is None:
            self._places.pop(known, None)
            return
        if place is None:
            if len(self._places) >= MAX_PLACES:
                return
            where = op.entry[3] if op.entry is not None else None
            made = self._masks.get(mask) or self._made_equal(visible)
            place = self._places[known] = _Place(made, where, inverted.row, step)
        if place.last != step:
            place.steps, place.rows = place.steps + 1, place.rows + int(inverted.mixed.sum())
            place.last = step

    def _made_equal(self, visible: torch.Tensor) -> CodeLocation | None:
        """Return the line that made a mask with these values, if there is one: a library made another of it, unseen."""
        lines = set()
        for mask, made in self._masks.items():
            if mask.shape == visible.shape and mask.is_cpu and not private.is_unsafe_to_read(mask):
                values = mask if mask.dtype is torch.bool else mask != 0
                if torch.equal(values, visible) or torch.equal(values, ~visible):
                    lines.add(made)
        return lines.pop() if len(lines) == 1 else None

    def records(self) -> Iterator[InvertedMask]:
        """Yield a record of each line that hides the tokens and leaves the padding visible."""
        lines: set[CodeLocation | None] = set()
        for (spot, name), place in self._places.items():
            if (
                place.steps < thresholds.INVERTED_MASK_MIN_STEPS
                or place.rows < thresholds.INVERTED_MASK_MIN_ROWS
                or (place.made or spot) in lines
            ):
                continue
            lines.add(place.made or spot)
            yield InvertedMask(
                name,
                self._context.modules.place_of(place.where),
                self._frames.site(place.made),
                self._frames.site(spot),
                *(place.padding_row, place.rows, place.steps, place.first),
            )


def _mask_of(op: Op, name: str) -> tuple[torch.Tensor, torch.Tensor] | None:
    """Return the mask that an op applies to scores of attention, and which positions it leaves visible, by sequence.

    ``None`` if it applies none, or one that is the same for all sequences.
    """
    mask: Any = None
    if name == _MULTI_HEAD:
        mask, hides = op.kwargs.get("key_padding_mask"), True
    elif name == _ATTENTION:
        given = op.args[_MASK_POSITION] if len(op.args) > _MASK_POSITION else None
        mask, hides = op.kwargs.get("attn_mask", given), False
    elif (
        name == _FILL
        and len(op.args) == 3
        and type(op.args[2]) in (int, float)
        and op.args[2] <= thresholds.MASK_HIDDEN_SCORE
    ):
        is_score = isinstance(op.args[0], _Tensor) and op.args[0].requires_grad
        mask, hides = (op.args[1] if is_score else None), True
    if not isinstance(mask, _Tensor) or mask.dim() < (3 if name == _ATTENTION else 2) or mask.numel() > MAX_MASK:
        return None
    if not mask.is_cpu or private.is_unsafe_to_read(mask):
        return None
    with private.measuring():
        if mask.dtype is not torch.bool:
            visible = mask > thresholds.MASK_HIDDEN_SCORE
        else:
            visible = ~mask if hides else mask
        while visible.dim() > 2:  # any head and any query
            visible = visible.any(1)
    return (mask, visible) if visible.shape[0] > 1 else None


def _aligned(visible: torch.Tensor, padding: torch.Tensor) -> torch.Tensor | None:
    """Return the visible positions of the tokens of a lookup; ``None`` if the shapes differ.

    One more position comes first, as of a class token that is no id.
    """
    if visible.shape == padding.shape:
        return visible
    rows, length = padding.shape
    return visible[:, 1:] if visible.shape == (rows, length + 1) else None
