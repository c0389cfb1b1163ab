"""Places where a gradient could not be had: ``.grad`` of no leaf, inference mode, gradient mode turned off."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import torch

from ...records import NoGradient
from ...source.defined import use_of
from ...source.frames import Spot
from ...torch_texts import INFERENCE, NO_GRAPH
from ..forward.eye import Eye
from ..forward.naming import Naming
from ..forward.values import tensor_names

#: Places that are noted at most.
LIMIT = 100


class NoGradients:
    """Notes them by kind and line."""

    def __init__(self, eye: Eye, names: Naming) -> None:
        self._eye, self._names = eye, names
        self._found: dict[Any, NoGradient] = {}

    def read(self, tensor: Any, frame: Any) -> None:
        """``.grad`` of `tensor` was read at `frame`, and is ``None``."""
        frames = self._names.frames
        if tensor.grad_fn is None or tensor.retains_grad or not frames.is_user(frame.f_code):
            return
        site = frames.site((frame.f_code, frame.f_lasti))
        key = ("nonleaf", site)
        known = self._found.get(key)
        if known is not None:
            self._found[key] = dataclasses.replace(known, count=known.count + 1)
        elif len(self._found) < LIMIT:
            name = tensor_names(frames, frame).get(id(tensor), "")
            made = self._eye.made_at(tensor)
            self._found[key] = NoGradient("nonleaf", site, None, self._names.here(), name, 1, made)

    def op_raised(self, text: str, frame: Any) -> None:
        """An op of the forward that `frame` called raised an error that says `text`."""
        if INFERENCE in text and len(self._found) < LIMIT:
            frames = self._names.frames
            failed = frames.site(frames.spot(frame))
            site = use_of(frames, "inference_mode", failed.file if failed else "")
            self._found[("inference", site)] = NoGradient("inference", site, failed, self._names.here(), "")

    def no_graph(self, text: str, roots: Sequence[Any], spot: Spot | None) -> None:
        """A backward call met a root without a graph: was it built while gradient mode was off?"""
        modules, frames = self._names.modules, self._names.frames
        site, failed = modules.grad_off, frames.site(spot)
        if NO_GRAPH not in text or len(self._found) > LIMIT:
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
