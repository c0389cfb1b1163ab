"""Regions of ``torch.utils.checkpoint``: which one runs, and what it keeps."""

from __future__ import annotations

from typing import Any

import torch.utils.checkpoint

from . import code_objects
from .saved_by_nodes import saved_slots, top_hooks

#: Raised inside the op that gives a recomputation the last tensor that it needs.
StopRecomputation = torch.utils.checkpoint._StopRecomputationError


def checkpoint_mark() -> tuple[Any, Any] | None:
    """The region of a checkpoint that is not reentrant, where one is running on this thread: its frame object, and what
    tells this recomputation from others (``None`` in the forward)."""
    pair = top_hooks()
    if pair is None:
        return None
    pack = getattr(pair[0], "__wrapped__", pair[0])
    held = _closure(pack)
    if "target_frame_ref" in held:
        return held["target_frame_ref"].cell_contents(), pack
    return (held["frame"].cell_contents, None) if "frame" in held else None


def checkpoint_frame(hook: Any) -> Any:
    """The frame object of a checkpoint that is not reentrant, from the hook that unpacks for it; ``None`` for other
    hooks."""
    held = _closure(hook)
    return held["frame"].cell_contents if "frame" in held else None


def _closure(hook: Any) -> dict[str, Any]:
    """The cells of a function that the file of torch's checkpoints defines; empty for others."""
    code = getattr(hook, "__code__", None)
    if code is None or code.co_filename != code_objects.CHECKPOINT_FILE or not hook.__closure__:
        return {}
    return dict(zip(code.co_freevars, hook.__closure__, strict=True))


def checkpoint_inputs(frame: Any) -> list[Any]:
    """The slots of the tensors that went into a region of a checkpoint that is not reentrant, from its frame object."""
    given = getattr(frame, "saved_args", None)
    if given is not None:
        return [value for value in given if hasattr(value, "unpack_hook")]
    saver = getattr(getattr(frame, "input_saver", None), "grad_fn", None)  # a node that torch makes to keep them
    # The first is a dummy of torch's that makes the node.
    return [slot for _, slot in saved_slots(saver)][1:] if saver is not None else []
