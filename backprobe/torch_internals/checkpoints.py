"""Regions of ``torch.utils.checkpoint``: the one that is running, and its saved inputs."""

from __future__ import annotations

from types import CellType, FrameType
from typing import Any

import torch.utils.checkpoint

from . import code_objects
from .saved_by_nodes import saved_slots, top_hooks

#: Raised inside the op that gives a recomputation the last tensor that it needs.
StopRecomputation = torch.utils.checkpoint._StopRecomputationError


def checkpoint_mark() -> tuple[object, object] | None:
    """Return (frame object, run) of the non-reentrant checkpoint region on this thread; ``None`` if there is none.

    ``run`` identifies one recomputation; it is ``None`` in the forward.
    """
    pair = top_hooks()
    if pair is None:
        return None
    pack = getattr(pair[0], "__wrapped__", pair[0])
    held = _closure(pack)
    if "target_frame_ref" in held:
        return held["target_frame_ref"].cell_contents(), pack
    return (held["frame"].cell_contents, None) if "frame" in held else None


def checkpoint_frame(hook: object) -> Any:
    """Return the frame object of a non-reentrant checkpoint from its unpack hook; ``None`` for other hooks."""
    held = _closure(hook)
    return held["frame"].cell_contents if "frame" in held else None


def _closure(hook: Any) -> dict[str, CellType]:
    """Return the closure cells of a function defined in torch's checkpoint file; empty for others."""
    code = getattr(hook, "__code__", None)
    if code is None or code.co_filename != code_objects.CHECKPOINT_FILE or not hook.__closure__:
        return {}
    return dict(zip(code.co_freevars, hook.__closure__, strict=True))


def checkpoint_inputs(frame: FrameType) -> list[object]:
    """Return the slots of the tensors that a non-reentrant checkpoint region took, from its frame object."""
    given = getattr(frame, "saved_args", None)
    if given is not None:
        return [value for value in given if hasattr(value, "unpack_hook")]
    saver = getattr(getattr(frame, "input_saver", None), "grad_fn", None)  # a node that torch creates to keep them
    # The first is a dummy tensor of torch's, which creates the node.
    return [slot for _, slot in saved_slots(saver)][1:] if saver is not None else []
