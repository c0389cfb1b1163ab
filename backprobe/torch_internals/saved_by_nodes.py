"""Reads the tensors that nodes saved for their backward without running hooks; and the stack of saved-tensor hooks."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import torch

from ..basics.torch_texts import FREED, IN_PLACE
from . import saved_by_unpacking

#: Whether torch exposes the content of a saved tensor, and the hook that packed it (2.10 does, 2.8 does not). If not,
#: `saved_by_unpacking.py` is used.
SHOWS_SAVED = hasattr(torch._C._autograd.SavedTensor, "unpack_hook")

#: A value that a node saved, read without running a hook: its name, the tensor, whether it is the node's own result,
#: whether it was written in place since (torch would refuse to use it), and the unpack hook that hides it. If there is
#: a hook, the tensor is ``None``.
SavedView = tuple[str, "torch.Tensor | None", bool, bool, Any]

_top_hooks = getattr(torch._C._autograd, "_top_saved_tensors_default_hooks", None)

#: Push a pair of saved-tensor hooks on this thread's stack, and pop the innermost.
push_hooks = torch._C._autograd._push_saved_tensors_default_hooks

pop_hooks = torch._C._autograd._pop_saved_tensors_default_hooks


def top_hooks() -> tuple[Callable[..., object], Callable[..., object]] | None:
    """Return the innermost pair of saved-tensor hooks of this thread."""
    return _top_hooks(True) if _top_hooks is not None else None


def stacked_hooks() -> list[tuple[Callable[..., object], Callable[..., object]]]:
    """Return the saved-tensor hooks of this thread, outermost first.

    Only the top can be read, so they are popped and pushed again.
    """
    autograd = torch._C._autograd
    if _top_hooks is None:
        return []
    pairs: list[tuple[Callable[..., object], Callable[..., object]]] = []
    try:
        while (pair := _top_hooks(True)) is not None:
            pairs.insert(0, pair)
            autograd._pop_saved_tensors_default_hooks()
    finally:
        for pair in pairs:
            autograd._push_saved_tensors_default_hooks(*pair)
    return pairs


def in_place_error() -> str:
    """Return torch's error for a saved tensor that was written in place.

    It is provoked on a separate thread, which has no hooks.
    """
    said: list[str] = []

    def provoke() -> None:
        """Write to a tensor that a node saved, read it, and keep the error's text."""
        with torch.enable_grad():
            made = torch.ones(1, dtype=torch.float32, requires_grad=True).exp()
        with torch.no_grad():
            made.add_(1)
        try:
            _ = made.grad_fn._saved_result  # type: ignore[union-attr]
        except RuntimeError as error:
            said.append(str(error))

    thread = threading.Thread(target=provoke)
    thread.start()
    thread.join()
    return said[0] if said else ""


def saved_tensors(node: object) -> list[tuple[str, torch.Tensor]]:
    """Return the tensors that `node` saved, by name, without calling an unpack hook.

    Tensors behind a saved-tensor hook are left out: unpacking them runs user code, and a checkpoint recomputes.
    """
    found = []
    for name, slot in saved_slots(node):
        value, packed = slot_content(slot) or (None, True)
        if not packed and isinstance(value, torch.Tensor):
            found.append((name, value))
    return found


def uses_running_statistics(node: object) -> bool:
    """Return whether a normalisation's node ran in eval mode, so that its backward reads the running statistics."""
    return not getattr(node, "_saved_training", True)


def attention_settings(node: object) -> tuple[float | None, bool]:
    """Return the scale of a ``scaled_dot_product_attention`` node, if it was given, and whether it is causal."""
    scale = getattr(node, "_saved_scale", None)
    return scale if isinstance(scale, float) else None, bool(getattr(node, "_saved_is_causal", False))


def chosen_from(node: object) -> tuple[int, tuple[int, ...]] | None:
    """Return the dimension of a ``topk`` or ``max`` node, and the shape of its input; ``None`` for other nodes."""
    dim, shape = getattr(node, "_saved_dim", None), getattr(node, "_saved_self_sym_sizes", None)
    if not isinstance(dim, int) or not isinstance(shape, tuple) or not shape:
        return None
    return _signed(dim) % len(shape), shape


def slice_of(node: object) -> tuple[int, int, int] | None:
    """Return what a node of ``x[a:b]`` took of the dimension 1 of x: (first position, positions, positions of x).

    ``None`` for other dimensions, steps and nodes.
    """
    dim, shape = getattr(node, "_saved_dim", None), getattr(node, "_saved_self_sym_sizes", None)
    start, end = getattr(node, "_saved_start", None), getattr(node, "_saved_end", None)
    if not (isinstance(dim, int) and isinstance(shape, tuple) and isinstance(start, int) and isinstance(end, int)):
        return None
    if len(shape) < 2 or _signed(dim) % len(shape) != 1 or getattr(node, "_saved_step", 1) != 1:
        return None
    first, last, _ = slice(_signed(start), _signed(end)).indices(shape[1])
    return first, max(0, last - first), shape[1]


def shape_before(node: object) -> tuple[int, ...] | None:
    """Return the shape of the input of a ``view`` node; ``None`` if it is unknown."""
    shape = getattr(node, "_saved_self_sym_sizes", None)
    return shape if isinstance(shape, tuple) else None


def embedding_lookup(node: object) -> tuple[int, torch.Tensor | None]:
    """Return the padding row of an embedding's node, -1 if it has none, and the ids that were looked up.

    The ids are ``None`` if they are freed, or behind a hook.
    """
    row = getattr(node, "_saved_padding_idx", -1)
    return max(_signed(row), -1), _saved_value(node, "indices")


def class_targets(node: object) -> tuple[torch.Tensor | None, int]:
    """Return the targets of an ``nll_loss`` node, and the class that it ignores.

    The targets are ``None`` if they are freed, or behind a hook.
    """
    ignored = getattr(node, "_saved_ignore_index", -100)
    return _saved_value(node, "target"), _signed(ignored)


def ctc_targets(node: object) -> tuple[torch.Tensor | None, tuple[int, ...], int]:
    """Return the targets of a ``ctc_loss`` node, their lengths, and the class of the blank.

    The targets are ``None`` if they are freed, or behind a hook.
    """
    lengths, blank = getattr(node, "_saved_target_lengths", ()), getattr(node, "_saved_blank", -1)
    return _saved_value(node, "targets"), lengths if isinstance(lengths, tuple) else (), blank


def _saved_value(node: object, name: str) -> torch.Tensor | None:
    """Return the tensor that a node saved under `name`; ``None`` if it is freed, or behind a hook."""
    value, packed = slot_content(saved_slot(node, name)) or (None, True)
    return None if packed else value


def _signed(number: int) -> int:
    """Return a number that torch saved as unsigned."""
    return number - (1 << 64) if number >= 1 << 63 else number


def saved_attributes(cls: type, node: object) -> tuple[tuple[str, str, str], ...]:
    """Return (raw attribute, unpacking attribute, name) of each saved value; the same for all nodes of a class."""
    if hasattr(cls, "_raw_saved_tensors"):  # a Function written in Python
        return (("_raw_saved_tensors", "saved_tensors", "saved"),)
    raw = [a for a in dir(node) if a.startswith("_raw_saved_")]
    return tuple((a, a[len("_raw") :], a[len("_raw_saved_") :]) for a in raw)


def read_saved(node: object, attributes: tuple[tuple[str, str, str], ...]) -> tuple[list[SavedView], bool | None]:
    """Return the saved values of `node`, and whether a backward has freed it: ``None`` if it saves no tensors."""
    found: list[SavedView] = []
    freed: bool | None = None
    for raw_name, unpack_name, name in attributes:
        try:
            raw = getattr(node, raw_name)
        except RuntimeError:
            freed = True
            continue
        if not SHOWS_SAVED:
            freed = _read_slots(saved_by_unpacking.slots(node, raw_name, raw), name, found) or bool(freed)
            continue
        if not isinstance(raw, (tuple, list)):
            freed = _read_one(node, unpack_name, name, raw, found) or bool(freed)
            continue
        value: Any = None
        changed = False
        hooked = [one is not None and one.unpack_hook is not None for one in raw]
        if raw and not any(hooked):
            try:
                value = getattr(node, unpack_name)
            except RuntimeError as error:
                changed = IN_PLACE in str(error)
                if FREED in str(error):
                    freed = True
                    continue
        for i, one in enumerate(raw):
            tensor = one.data if one is not None and not hooked[i] else None
            if tensor is not None or hooked[i]:
                own = value is not None and value[i] is not None and value[i].grad_fn is node
                found.append((f"{name}[{i}]", tensor, own, changed, one.unpack_hook if hooked[i] else None))
        freed = bool(freed)
    return found, freed


def _read_one(node: object, unpack_name: str, name: str, raw: Any, found: list[SavedView]) -> bool:
    """Read one saved tensor into `found`; return whether it has been freed."""
    if raw is None:
        return False
    hook = raw.unpack_hook
    if hook is not None:
        found.append((name, None, False, False, hook))
        return False
    tensor = raw.data
    changed = own = False
    try:
        value = getattr(node, unpack_name)
        own = value is not None and value.grad_fn is node
    except RuntimeError as error:
        changed = IN_PLACE in str(error)
        if not changed and FREED in str(error):
            return True
    if tensor is not None:  # otherwise no gradient needs it, so it was not saved
        found.append((name, tensor, own, changed, None))
    return False


def _read_slots(slots: list[saved_by_unpacking.Slot], name: str, found: list[SavedView]) -> bool:
    """Read one attribute into `found` if torch does not expose what is saved; return whether it has been freed."""
    for i, slot in enumerate(slots):
        if slot.freed:
            return True
        hook = slot.unpack_hook
        tensor = slot.data if hook is None else None
        if tensor is not None or hook is not None:
            found.append((f"{name}[{i}]" if slot.many else name, tensor, slot.own, slot.changed, hook))
    return False


def saved_slot(node: object, name: str) -> object:
    """Return the saved tensor of `node` with that name, as ``saved_slots`` does.

    ``None`` if there is none or it is freed.
    """
    attribute = f"_raw_saved_{name}"
    try:
        raw = getattr(node, attribute, None)
    except RuntimeError:  # freed
        return None
    if raw is None or isinstance(raw, (tuple, list)):
        return None
    return raw if SHOWS_SAVED else next(iter(saved_by_unpacking.slots(node, attribute, raw)), None)


def saved_slots(node: object) -> list[tuple[str, Any]]:
    """Return the saved tensors of `node` as torch keeps them, by name: objects with ``data`` and ``unpack_hook``.

    Nothing is unpacked. Empty if the node is freed, or if its class lists no saved tensors.
    """
    found: list[tuple[str, Any]] = []
    for attribute in dir(type(node)):
        if not attribute.startswith("_raw_saved_"):
            continue
        try:
            raw = getattr(node, attribute)
        except RuntimeError:  # freed
            continue
        many = isinstance(raw, (tuple, list))
        slots = (raw if many else [raw]) if SHOWS_SAVED else saved_by_unpacking.slots(node, attribute, raw)
        for i, one in enumerate(slots):
            if one is not None:
                found.append((attribute[len("_raw_saved_") :] + (f"[{i}]" if many else ""), one))
    return found


def slot_content(slot: Any) -> tuple[Any, bool] | None:
    """Return the content of a saved-tensor slot, and whether hooks packed it; ``None`` if it is empty or freed."""
    try:
        packed = slot.unpack_hook is not None
        return slot.data, packed
    except (RuntimeError, AttributeError):
        return None


def is_freed(node: object) -> bool:
    """Return whether a backward has freed the tensors that `node` had saved. No hook runs: a freed slot has none."""
    return read_saved(node, saved_attributes(type(node), node))[1] is True


def hidden_users(slot: Any) -> int:
    """Return the references to a slot's memory other than that of the tensor that `slot_content` returns.

    Torch holds one if it creates a new tensor object for each reader.
    """
    return 0 if SHOWS_SAVED else int(slot.hidden_users)


def is_unseen(content: object) -> bool:
    """Return whether `content` stands for a packed value that this torch does not expose."""
    return isinstance(content, saved_by_unpacking.Unseen)


def lists_its_tensors(node: object) -> bool:
    """Return whether the class of `node` lists its saved tensors.

    ``False`` for nodes defined by C++ extensions, of which Python knows only the name.
    """
    return type(node).__name__ != "CppFunction"
