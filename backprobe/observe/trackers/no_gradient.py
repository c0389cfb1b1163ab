"""Records places without a gradient: ``.grad`` of a non-leaf, tensors of inference mode."""

from __future__ import annotations

import dataclasses
from types import FrameType
from typing import TYPE_CHECKING

from ...basics.torch_texts import INFERENCE
from ...records import NoGradient
from ...source.definitions import use_of
from ..forward.values import tensor_names
from ..tracker import Tracker
from ..tracker_context import TrackerContext

if TYPE_CHECKING:
    import torch

#: Maximum number of places.
MAX_PLACES = 100


class NoGradientTracker(Tracker):
    """Tracker of places without a gradient, by kind and line."""

    def __init__(self, context: TrackerContext) -> None:
        self._recorder, self._names = context.recorder, context.names
        self._found: dict[object, NoGradient] = {}

    def nonleaf_grad_read(self, tensor: torch.Tensor, frame: FrameType) -> None:
        """Record a line of the user's that reads ``.grad`` of a non-leaf tensor which does not retain it."""
        frames = self._names.frames
        if tensor.retains_grad or not frames.is_user(frame.f_code):
            return
        site = frames.site((frame.f_code, frame.f_lasti))
        key = ("nonleaf", site)
        known = self._found.get(key)
        if known is not None:
            self._found[key] = dataclasses.replace(known, count=known.count + 1)
        elif len(self._found) < MAX_PLACES:
            name = tensor_names(frames, frame).get(id(tensor), "")
            made = self._recorder.made_at(tensor)
            self._found[key] = NoGradient("nonleaf", site, None, self._names.here(), name, 1, made)

    def op_raised(self, text: str, frame: FrameType, args: object) -> None:
        """Record an op that failed on a tensor of inference mode, with the line that turned this mode on."""
        if INFERENCE in text and len(self._found) < MAX_PLACES:
            frames = self._names.frames
            failed = frames.site(frames.spot(frame))
            site = use_of(frames, "inference_mode", failed.file if failed else "")
            self._found[("inference", site)] = NoGradient("inference", site, failed, self._names.here(), "")

    def records(self) -> tuple[NoGradient, ...]:
        """Return the places without a gradient."""
        return tuple(self._found.values())
