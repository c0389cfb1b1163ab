"""What nodes have saved for their backward, read without running anybody's hook; and the stack of such hooks."""

from __future__ import annotations

import threading
from typing import Any

import torch

from ..torch_texts import FREED, IN_PLACE
from . import saved_by_unpacking

#: Whether torch shows what a saved tensor holds, and which hook packed it (2.8 does not, 2.10 does). Else
#: `saved_by_unpacking.py` finds out.
SHOWS_SAVED = hasattr(torch._C._autograd.SavedTensor, "unpack_hook")

#: One thing that a node saved, read without running anybody's hook: its name, the tensor, whether it is the node's own
#: result, whether it was written in place since (torch would refuse to use it), the unpack hook that it lies behind.
#: Behind a hook the tensor is ``None``.
SavedView = tuple[str, "torch.Tensor | None", bool, bool, Any]

_top_hooks = getattr(torch._C._autograd, "_top_saved_tensors_default_hooks", None)

#: Put a pair on this thread's stack of saved-tensor hooks, and take the innermost off.
push_hooks = torch._C._autograd._push_saved_tensors_default_hooks

pop_hooks = torch._C._autograd._pop_saved_tensors_default_hooks


def top_hooks() -> tuple[Any, Any] | None:
    """The innermost pair of saved-tensor hooks of this thread."""
    return _top_hooks(True) if _top_hooks is not None else None


def stacked_hooks() -> list[tuple[Any, Any]]:
    """The saved-tensor hooks of this thread, outermost first: only the top can be read, so they are lifted off and put
    back."""
    autograd = torch._C._autograd
    if _top_hooks is None:
        return []
    pairs: list[tuple[Any, Any]] = []
    try:
        while (pair := _top_hooks(True)) is not None:
            pairs.insert(0, pair)
            autograd._pop_saved_tensors_default_hooks()
    finally:
        for pair in pairs:
            autograd._push_saved_tensors_default_hooks(*pair)
    return pairs


def in_place_error() -> str:
    """What torch says of a saved tensor that was written in place: provoked on a thread of its own, where no hooks are
    on."""
    said: list[str] = []

    def provoke() -> None:
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


def saved_tensors(node: Any) -> list[tuple[str, torch.Tensor]]:
    """The tensors that `node` keeps, by name, without calling anybody's unpack hook.

    Tensors behind a saved-tensor hook are left out: unpacking them runs user code, and a checkpoint recomputes.
    """
    found = []
    for name, slot in saved_slots(node):
        value, packed = slot_content(slot) or (None, True)
        if not packed and isinstance(value, torch.Tensor):
            found.append((name, value))
    return found


def uses_running_statistics(node: Any) -> bool:
    """Whether `node`, of a normalisation, is of one in eval mode: its backward reads the running statistics."""
    return not getattr(node, "_saved_training", True)


def attention_settings(node: Any) -> tuple[float | None, bool]:
    """Of a node of ``scaled_dot_product_attention``: the scale, where it was given, and whether it is causal."""
    scale = getattr(node, "_saved_scale", None)
    return scale if isinstance(scale, float) else None, bool(getattr(node, "_saved_is_causal", False))


def chosen_from(node: Any) -> tuple[int, tuple[int, ...]] | None:
    """Of a node of ``topk`` or of ``max`` along a dimension: that dimension, and the shape of what it chose from."""
    dim, shape = getattr(node, "_saved_dim", None), getattr(node, "_saved_self_sym_sizes", None)
    if not isinstance(dim, int) or not isinstance(shape, tuple) or not shape:
        return None
    return (dim - (1 << 64) + len(shape) if dim >= 1 << 63 else dim), shape  # a negative one is kept as unsigned


def shape_before(node: Any) -> tuple[int, ...] | None:
    """The shape of what a node of ``view`` gave another shape."""
    shape = getattr(node, "_saved_self_sym_sizes", None)
    return shape if isinstance(shape, tuple) else None


def saved_attributes(cls: type, node: Any) -> tuple[tuple[str, str, str], ...]:
    """(raw attribute, unpacking attribute, name) of what nodes of this type save. The same for all of a type."""
    if hasattr(cls, "_raw_saved_tensors"):  # a Function written in Python
        return (("_raw_saved_tensors", "saved_tensors", "saved"),)
    raw = [a for a in dir(node) if a.startswith("_raw_saved_")]
    return tuple((a, a[len("_raw") :], a[len("_raw_saved_") :]) for a in raw)


def read_saved(node: Any, attributes: tuple[tuple[str, str, str], ...]) -> tuple[list[SavedView], bool | None]:
    """What `node` keeps, and whether a backward has freed it: ``None`` where it saves no tensors."""
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


def _read_one(node: Any, unpack_name: str, name: str, raw: Any, found: list[SavedView]) -> bool:
    """Read one saved tensor into `found`; whether it has been freed."""
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
    if tensor is not None:  # else no gradient needs it, so it was not saved
        found.append((name, tensor, own, changed, None))
    return False


def _read_slots(slots: list[saved_by_unpacking.Slot], name: str, found: list[SavedView]) -> bool:
    """Read one attribute into `found`, where torch does not show what is saved; whether it has been freed."""
    for i, slot in enumerate(slots):
        if slot.freed:
            return True
        hook = slot.unpack_hook
        tensor = slot.data if hook is None else None
        if tensor is not None or hook is not None:
            found.append((f"{name}[{i}]" if slot.many else name, tensor, slot.own, slot.changed, hook))
    return False


def saved_slot(node: Any, name: str) -> Any:
    """The saved tensor of `node` by that name, as ``saved_slots`` has it; ``None`` where there is none or it is
    freed."""
    attribute = f"_raw_saved_{name}"
    try:
        raw = getattr(node, attribute, None)
    except RuntimeError:  # freed
        return None
    if raw is None or isinstance(raw, (tuple, list)):
        return None
    return raw if SHOWS_SAVED else next(iter(saved_by_unpacking.slots(node, attribute, raw)), None)


def saved_slots(node: Any) -> list[tuple[str, Any]]:
    """The saved tensors of `node` as torch keeps them, by name: objects with ``data`` and ``unpack_hook``. Nothing is
    unpacked. Empty where the node is freed, or is of a class that lists none."""
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
    """What a saved-tensor slot holds, and whether a pair of hooks packed it. ``None``: nothing, or freed."""
    try:
        packed = slot.unpack_hook is not None
        return slot.data, packed
    except (RuntimeError, AttributeError):
        return None


def is_freed(node: Any) -> bool:
    """Whether a backward has freed what `node` had saved. No hook is run: a slot that is freed has none."""
    return read_saved(node, saved_attributes(type(node), node))[1] is True


def hidden_users(slot: Any) -> int:
    """Users of a slot's memory besides the tensor that `slot_content` gives: what torch keeps, where it makes a new
    tensor of it for each who asks."""
    return 0 if SHOWS_SAVED else int(slot.hidden_users)


def is_unseen(content: Any) -> bool:
    """Whether `content` stands for something packed that this torch does not show."""
    return isinstance(content, saved_by_unpacking.Unseen)


def lists_its_tensors(node: Any) -> bool:
    """Whether the class of `node` tells what it has saved. ``False`` for nodes that C++ extensions define, of which
    Python sees a name only."""
    return type(node).__name__ != "CppFunction"
