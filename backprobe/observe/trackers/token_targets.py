"""Detects losses over tokens whose targets are not the next tokens of the sequence.

The graph has both: the ids that an embedding looked up, and the targets of ``nll_loss``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from types import FrameType
from typing import TYPE_CHECKING

import torch

from ... import thresholds
from ...ops import NORMALISES, info
from ...records import MisalignedTargets
from ...source.targets import shift_lines
from ...torch_internals import private
from ...torch_internals.saved_by_nodes import attention_settings, class_targets, embedding_lookup, slice_of
from ..backward.active_backward import ActiveBackward
from ..tracker import Tracker
from ..tracker_context import TrackerContext

if TYPE_CHECKING:
    from ...torch_internals.walk import LiveGraph

#: Maximum number of backward calls that are compared.
MAX_CALLS = 16
#: Maximum number of ids of one lookup that are read.
MAX_IDS = 100_000
#: Offsets that are tried: 1 is that of a language model.
NEXT_TOKEN, OFFSETS = 1, (-1, 0, 1, 2, 3)
#: The most nodes between scores and their loss that are searched for slices.
MAX_NODES_AFTER_SCORES = 16
_LOOKUP, _LOSS, _ATTENTION = "EmbeddingBackward0", "NllLoss", "ScaledDotProduct"


@dataclass
class _Compared:
    """Targets that were compared with a sequence: the offset at which they agree best, and how many there were."""

    offset: int
    share: float
    tokens: int


class TokenTargetTracker(Tracker):
    """Tracker that compares targets with the tokens of the input, in recorded backward calls on the CPU."""

    def __init__(self, context: TrackerContext) -> None:
        """Start without comparisons."""
        self._context = context
        self._calls, self._step = 0, 0
        #: Calls, tokens and the lowest share by offset, of targets that are not the next tokens.
        self._count: Counter[int] = Counter()
        self._tokens: Counter[int] = Counter()
        self._share: dict[int, float] = {}
        #: Whether some targets are the next tokens: the others are then meant.
        self._next = False

    def graph_walked(self, running: ActiveBackward, frame: FrameType) -> None:
        """Compare the targets of losses with the tokens that embeddings looked up, in the first calls that have
        both.
        """
        names = running.graph.plan.names
        if self._next or self._calls >= MAX_CALLS or _LOOKUP not in running.graph.plan.distinct:
            return
        losses = [i for i, name in enumerate(names) if name.startswith(_LOSS)]
        if not losses:
            return
        self._calls += 1
        with private.disable_function_modes(), private.hide_ops(), torch.no_grad():
            self._compare(running.graph, losses)

    def _compare(self, graph: LiveGraph, losses: list[int]) -> None:
        """Compare the targets of the loss nodes `losses` with all token sequences of a graph, and count the offsets
        found.

        Targets that are the same tokens (offset 0) count only if an attention is causal.
        """
        names = graph.plan.names
        sequences = token_sequences(graph)
        causal = any(
            name.startswith(_ATTENTION) and attention_settings(graph.nodes[i])[1] for i, name in enumerate(names)
        )
        found: list[_Compared] = []
        for i in losses:
            targets, ignored = class_targets(graph.nodes[i])
            if targets is not None and is_readable(targets):
                taken = score_positions(graph.nodes[i])
                found += [one for ids in sequences if (one := _agreement(ids, targets, ignored, taken)) is not None]
        self._next = self._next or any(one.offset == NEXT_TOKEN for one in found)
        # A call counts once, however many lookups of its ids there are.
        for one in {one.offset: one for one in found}.values():
            if one.offset == 0 and not causal:  # a tagger, an autoencoder or a masked language model
                continue
            self._step = self._step if self._count else self._context.steps.index
            self._count[one.offset] += 1
            self._tokens[one.offset] += one.tokens
            self._share[one.offset] = min(one.share, self._share.get(one.offset, 1.0))

    def records(self) -> Iterator[MisalignedTargets]:
        """Yield a record if the targets of all calls are tokens at one offset, and never the next tokens."""
        if self._next or not self._count:
            return
        offset, calls = self._count.most_common(1)[0]
        if calls >= thresholds.TOKEN_TARGETS_MIN_CALLS and calls == self._calls:
            lines = shift_lines(self._context.frames.users_files())
            yield MisalignedTargets(offset, self._share[offset], self._tokens[offset], calls, self._step, lines)


def is_readable(tensor: torch.Tensor) -> bool:
    """Return whether a tensor of ids is on the CPU, can be read, and is neither too small nor too large."""
    return (
        tensor.is_cpu
        and not private.is_unsafe_to_read(tensor)
        and thresholds.TOKEN_TARGETS_MIN_IDS <= tensor.numel() <= MAX_IDS
    )


def token_sequences(graph: LiveGraph) -> list[torch.Tensor]:
    """Return the ids that the lookups of a graph took, of those that took rows of tokens."""
    names = graph.plan.names
    looked_up = (embedding_lookup(graph.nodes[i])[1] for i, name in enumerate(names) if name == _LOOKUP)
    return [ids for ids in looked_up if ids is not None and ids.dim() == 2 and is_readable(ids)]


def score_positions(loss: torch.autograd.graph.Node | None) -> tuple[int, int, int] | None:
    """Return which positions of its sequence the scores of a loss are: the first, how many, and of how many.

    ``None`` if no slice between the scores and the loss left positions out.
    """
    node = loss
    for _ in range(MAX_NODES_AFTER_SCORES):
        node = node.next_functions[0][0] if node is not None and node.next_functions else None
        if (taken := slice_of(node)) is not None and taken[1] < taken[2]:
            return taken
        facts = info(type(node).__name__)
        keeps_positions = facts.reshapes or facts.is_elementwise or facts.forward == NORMALISES
        if not (taken or keeps_positions):
            return None
    return None


def _agreement(
    ids: torch.Tensor, targets: torch.Tensor, ignored: int, taken: tuple[int, int, int] | None
) -> _Compared | None:
    """Return at which offset the targets are the tokens of a sequence; ``None`` if at none, or if that is not clear.

    :param ids: shape (rows, positions). ``targets``: any shape whose elements are by row, with as many positions as the
        scores.
    :param taken: which positions of the sequence the scores are, if not all. A model that gives fewer positions than it
        got says nothing about which ones these are.
    """
    begin, count, length = taken or (0, ids.shape[1], ids.shape[1])
    if ids.shape[1] != length or targets.numel() != len(ids) * count:
        return None
    rows, ids = len(ids), ids[:, begin:]
    length = ids.shape[1]
    given = targets.reshape(rows, -1)
    shares: dict[int, tuple[float, int]] = {}
    for offset in OFFSETS:
        first, last = max(0, -offset), min(given.shape[1], length - offset)
        if last <= first:
            continue
        mine = given[:, first:last]
        counts = mine != ignored
        tokens = int(counts.sum())
        if tokens >= thresholds.TOKEN_TARGETS_MIN_IDS:
            equal = (mine == ids[:, first + offset : last + offset]) & counts
            shares[offset] = int(equal.sum()) / tokens, tokens
    if NEXT_TOKEN not in shares:
        return None
    if shares[NEXT_TOKEN][0] >= thresholds.TOKEN_TARGETS_MIN_SHARE:
        return _Compared(NEXT_TOKEN, *shares[NEXT_TOKEN])
    best = max(shares, key=lambda offset: shares[offset][0])
    clear = (
        shares[best][0] >= thresholds.TOKEN_TARGETS_MIN_SHARE
        and shares[NEXT_TOKEN][0] <= thresholds.TOKEN_TARGETS_MAX_NEXT_SHARE
    )
    return _Compared(best, *shares[best]) if clear else None
