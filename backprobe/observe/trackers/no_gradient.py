"""Records places without a gradient: ``.grad`` of a non-leaf, inference mode, gradient mode turned off."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch

from ...records import NoGradient, Site
from ...source.definitions import use_of
from ...source.frames import variables
from ...torch_internals import code_objects
from ...torch_texts import INFERENCE, NO_GRAPH
from ..backward.active_backward import ActiveBackward
from ..backward.pending_call_record import PendingCallRecord
from ..forward.values import tensor_names
from ..tracker import Tracker
from ..tracker_context import TrackerContext

#: Maximum number of places.
MAX_PLACES = 100


class NoGradientTracker(Tracker):
    """Tracker of places without a gradient, by kind and line."""

    def __init__(self, context: TrackerContext) -> None:
        self._recorder, self._names = context.recorder, context.names
        self._found: dict[Any, NoGradient] = {}
        #: The user's line that called the code that last turned gradient mode off, if a library other than torch did
        #: so.
        self._library: Site | None = None

    def grad_mode_set(self, on: bool, frame: Any) -> None:
        if on or not torch.is_grad_enabled():
            return
        frames, code = self._names.frames, frame.f_code
        if code_objects.is_decorator(code):
            code = getattr(variables(frame).get(code_objects.DECORATED), "__code__", code)
        if frames.is_user(code):
            self._library = None
        elif not code.co_filename.startswith(code_objects.TORCH):
            self._library = frames.site(frames.spot(frame))

    def nonleaf_grad_read(self, tensor: Any, frame: Any) -> None:
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

    def op_raised(self, text: str, frame: Any, args: Any) -> None:
        if INFERENCE in text and len(self._found) < MAX_PLACES:
            frames = self._names.frames
            failed = frames.site(frames.spot(frame))
            site = use_of(frames, "inference_mode", failed.file if failed else "")
            self._found[("inference", site)] = NoGradient("inference", site, failed, self._names.here(), "")

    def backward_recorded(self, running: ActiveBackward, recorded: PendingCallRecord) -> None:
        """Record where gradient mode was off, if a root of the call has no graph or is a leaf."""
        raised, roots, spot = recorded.raised, running.roots, running.spot
        if raised is None:
            # Only leaves were reached: such a loss may have been given requires_grad after it was computed.
            if len(running.graph.nodes) != len(roots) or any(r.grad_fn is not None for r in roots):
                return
        elif raised.node is not None or NO_GRAPH not in raised.text:
            return
        modules, frames = self._names.modules, self._names.frames
        site, failed = self._library or modules.grad_off, frames.site(spot)
        if len(self._found) > MAX_PLACES:
            return
        if any(isinstance(r, torch.Tensor) and r.is_inference() for r in roots):
            site = use_of(frames, "inference_mode", failed.file if failed else "") or site
        elif torch.is_grad_enabled() and not modules.all_quiet() and not modules.lost_grad:
            return
        if site is None:
            return
        self._found[("grad-mode", site)] = NoGradient("grad-mode", site, failed, "", "")

    def records(self) -> tuple[NoGradient, ...]:
        return tuple(self._found.values())
