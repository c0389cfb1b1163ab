"""The private torch API that backprobe uses, in this one file and the `private_*.py` beside it.

Checked on torch 2.8 to 2.13 (docs/versions.md). Each name says what it is for, so that a change in torch shows here and
nowhere else. What differs between versions is told by what torch has, not by its number.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
import torch.utils.checkpoint
from torch.utils._python_dispatch import _disable_current_modes

from . import private_backward, private_refs, private_saved

#: True where Dynamo is tracing, which reads it as a constant: what follows ``if compiling(): return`` is not compiled
#: into the user's function.
compiling = torch.compiler.is_dynamo_compiling

#: What ``no_grad`` and ``set_grad_enabled`` call; a torch function mode sees it.
set_grad_enabled = torch._C._set_grad_enabled

#: Sequence number that the next node made on this thread will get.
next_sequence_nr = torch.autograd._get_sequence_nr  # type: ignore[attr-defined]


#: A weak reference to a tensor, as ``weakref.ref`` makes one.
tensor_ref = private_refs.tensor_ref
tensors_alive = private_refs.tensors_alive

#: Whether torch shows what a saved tensor holds, and which hook packed it (2.8 does not, 2.10 does). Else
#: `private_saved.py` finds out.
SHOWS_SAVED = hasattr(torch._C._autograd.SavedTensor, "unpack_hook")


#: ``torch.autograd.backward`` as modes see it.
autograd_backward = private_backward.seen
#: Have a mode that is on see calls of it by name, or no longer. Later versions of torch show them anyway.
show_backward, unshow_backward = private_backward.show, private_backward.unshow


def mode_depth() -> int:
    """Number of torch function modes on this thread's stack."""
    return int(torch._C._len_torch_function_stack())


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


#: Raised inside the op that gives a recomputation the last tensor that it needs.
StopRecomputation = torch.utils.checkpoint._StopRecomputationError
_top_hooks = getattr(torch._C._autograd, "_top_saved_tensors_default_hooks", None)


def checkpoint_mark() -> tuple[Any, Any] | None:
    """The region of a checkpoint that is not reentrant, where one is running on this thread: its frame object, and what
    tells this recomputation from others (``None`` in the forward)."""
    pair = _top_hooks(True) if _top_hooks is not None else None
    if pair is None:
        return None
    pack = getattr(pair[0], "__wrapped__", pair[0])
    code = getattr(pack, "__code__", None)
    if code is None or code.co_filename != torch.utils.checkpoint.__file__ or not pack.__closure__:
        return None
    held = dict(zip(code.co_freevars, pack.__closure__, strict=True))
    if "target_frame_ref" in held:
        return held["target_frame_ref"].cell_contents(), pack
    return (held["frame"].cell_contents, None) if "frame" in held else None


def hands_off(tensor: torch.Tensor) -> bool:
    """Whether reading `tensor`'s values here would disturb or mislead: inside a ``torch.func`` transform, under a
    dispatch mode of the user's or ``torch.jit.trace``, in a CUDA graph capture, or on the meta device."""
    return bool(
        torch._C._functorch.maybe_current_level() is not None
        or torch._C._len_torch_dispatch_stack() > 0
        or torch._C._get_tracing_state() is not None
        or (not tensor.is_cpu and (tensor.is_meta or (tensor.is_cuda and torch.cuda.is_current_stream_capturing())))
    )


#: Whether a tensor belongs to a ``torch.func`` transform, also one that is over.
is_wrapped = torch._C._functorch.is_functorch_wrapped_tensor


def in_mode() -> bool:
    """Whether a dispatch mode of the user's is on."""
    return bool(torch._C._len_torch_dispatch_stack() > 0)


#: Whether a profiler records the ops of this thread.
profiled = torch._C._autograd._profiler_enabled


#: Whether a profiler, where one is on, is to record the ops of this thread.
record_ops = torch._C._autograd._enable_record_function


@contextmanager
def unprofiled() -> Iterator[None]:
    """A profiler of the user's does not record the ops inside. One that asks an accelerator for its kernels does. One
    such block inside another would end it."""
    if not profiled():
        yield
        return
    record_ops(False)
    try:
        yield
    finally:
        record_ops(True)


@contextmanager
def undispatched() -> Iterator[None]:
    """Dispatch modes of the user's do not see the ops inside. Where there is one it is for plain tensors only:
    subclasses do their work where the modes do."""
    if not in_mode():
        yield
        return
    with torch._C._DisableTorchDispatch():
        yield


@contextmanager
def unnoticed() -> Iterator[None]:
    """Both."""
    with unprofiled(), undispatched():
        yield


#: How many dispatch modes are on, and what ``torch.jit.trace`` records into while it does.
dispatch_modes, jit_tracing = torch._C._len_torch_dispatch_stack, torch._C._get_tracing_state


def is_plain(tensor: Any) -> bool:
    """Whether `tensor` is of no subclass that does its work under dispatch modes."""
    return type(tensor) in (torch.Tensor, torch.nn.Parameter)


#: ``with unseen():`` calls inside do not go through torch function modes.
unseen = torch._C.DisableTorchFunction

#: The engine's number of the backward that is running on this thread; -1 where none is.
graph_task = torch._C._current_graph_task_id


def top_mode() -> Any:
    """The innermost torch function mode of this thread."""
    depth = mode_depth()
    return torch._C._get_function_stack_at(depth - 1) if depth else None


def drop_mode(mode: Any) -> None:
    """Take `mode` off this thread's stack of torch function modes, whatever was put on it since."""
    if not any(torch._C._get_function_stack_at(i) is mode for i in range(mode_depth())):
        return
    above = []
    while (top := torch._C._pop_torch_function_stack()) is not mode:
        above.append(top)
    for other in reversed(above):
        torch._C._push_on_torch_function_stack(other)


def runs_node(node: Any) -> bool | None:
    """Whether the backward that runs on this thread runs `node`, or captures its gradient. ``None``: torch cannot
    tell."""
    try:
        return bool(torch._C._will_engine_execute_node(node))
    except RuntimeError:  # a leaf in ``autograd.grad``
        return None


#: Have a function called when the backward that runs on this thread is over. Where it fails, the function is dropped
#: without a call.
at_end = torch.autograd.Variable._execution_engine.queue_callback


def in_backward() -> bool:
    """Whether this thread runs a backward call: a module called now is called by a recomputation or a hook."""
    return bool(torch._C._current_graph_task_id() != -1)


def last_graph_task() -> int:
    """Number of a backward call made here and now: those to come have higher ones. Makes no node and no random number;
    -1 where a backward cannot be made (inference mode)."""
    found = [-1]
    try:
        with torch._C.DisableTorchFunction(), _disable_current_modes(), torch.enable_grad():
            x = torch.zeros((), requires_grad=True, device="cpu")
            x.register_hook(lambda grad: found.append(graph_task()))
            torch.autograd.grad(x, x)
    except RuntimeError:
        pass
    return found[-1]


def is_batched(tensor: torch.Tensor) -> bool:
    """Whether `tensor` stands for many at once inside ``vmap`` (``is_grads_batched``)."""
    functorch = torch._C._functorch
    return bool(functorch.is_batchedtensor(tensor) or functorch.is_legacy_batchedtensor(tensor))


def in_transform() -> bool:
    """Whether a ``torch.func`` transform is going on in this thread."""
    return torch._C._functorch.maybe_current_level() is not None


def function_modes() -> list[Any]:
    """The torch function modes of this thread, outermost first."""
    return [torch._C._get_function_stack_at(i) for i in range(torch._C._len_torch_function_stack())]


#: One thing that a node saved, read without running anybody's hook: its name, the tensor, whether it is the node's own
#: result, whether it was written in place since (torch would refuse to use it), the unpack hook that it lies behind.
#: Behind a hook the tensor is ``None``.
SavedView = tuple[str, "torch.Tensor | None", bool, bool, Any]


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
            freed = _read_slots(private_saved.slots(node, raw_name, raw), name, found) or bool(freed)
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
                changed = "inplace operation" in str(error)
                if "second time" in str(error):
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
        changed = "inplace operation" in str(error)
        if not changed and "second time" in str(error):
            return True
    if tensor is not None:  # else no gradient needs it, so it was not saved
        found.append((name, tensor, own, changed, None))
    return False


def _read_slots(slots: list[private_saved.Slot], name: str, found: list[SavedView]) -> bool:
    """Read one attribute into `found`, where torch does not show what is saved; whether it has been freed."""
    for i, slot in enumerate(slots):
        if slot.freed:
            return True
        hook = slot.unpack_hook
        tensor = slot.data if hook is None else None
        if tensor is not None or hook is not None:
            found.append((f"{name}[{i}]" if slot.many else name, tensor, slot.own, slot.changed, hook))
    return False


def storage_of(tensor: torch.Tensor) -> tuple[int, int] | None:
    """What tells a tensor's storage from others while both live, and its bytes. ``None`` where it has none."""
    if tensor.layout is not torch.strided:
        return None
    try:
        storage = tensor.untyped_storage()
        return int(storage._cdata), int(storage.nbytes())
    except (RuntimeError, NotImplementedError):
        return None


def backward_module(node: Any) -> Any:
    """The FX graph of what a compiled region runs in its backward, where torch still has it, else ``None``."""
    info = getattr(getattr(node, "_forward_cls", None), "_lazy_backward_info", None)
    return getattr(info, "bw_module", None)


def is_compiled(node: Any) -> bool:
    """Whether `node` is a whole compiled region."""
    return hasattr(getattr(node, "_forward_cls", None), "compiled_bw")


def push_function_mode(mode: Any) -> None:
    torch._C._push_on_torch_function_stack(mode)


def pop_function_mode() -> Any:
    return torch._C._pop_torch_function_stack()


def skip_sequence_numbers(count: int) -> None:
    """Move this thread's sequence counter on by `count`: about 0.2 microseconds each."""
    if count <= 0:
        return
    before = next_sequence_nr()
    make: Any = torch._C._FunctionBase
    make()
    if next_sequence_nr() == before:  # older torch numbers it only when it is applied
        make = functools.partial(torch._C._functions.DelayedError, "", 1)
    for _ in range(before + count - next_sequence_nr()):
        make()


def _autocast_devices() -> list[str]:
    """Types of device that know autocast. Torch 2.8 does not list them."""
    listed = getattr(torch._C, "_autocast_supported_devices", None)
    if listed is not None:
        return list(listed())
    known = ("cpu", "cuda", "xpu", "mps", "hpu", "mtia", "xla", "ipu", torch._C._get_privateuse1_backend_name())
    return [device for device in known if torch._C._is_autocast_available(device)]


class ThreadState:
    """What torch keeps for each thread, taken from one thread and put on another that has not run torch yet.

    Taken: gradient mode, inference mode, autocast, torch function modes (the default device is one), dispatch modes,
    saved-tensor hooks, whether they are allowed, the engine's switches, CUDA device and stream.
    """

    #: (what to read, what to call with it)
    _SWITCHES = (
        (torch.is_grad_enabled, torch._C._set_grad_enabled),
        (torch._C._is_fwd_grad_enabled, torch._C._set_fwd_grad_enabled),
        (torch._C._is_multithreading_enabled, torch._C._set_multithreading_enabled),
        (torch._C._is_view_replay_enabled, torch._C._set_view_replay_enabled),
        (torch.is_autocast_cache_enabled, torch.set_autocast_cache_enabled),
    )

    def __init__(self) -> None:
        self._switches = [(put, read()) for read, put in self._SWITCHES]
        self._inference = torch.is_inference_mode_enabled()
        self._autocast = []
        for device in _autocast_devices():
            if torch.is_autocast_enabled(device):
                self._autocast.append((device, torch.get_autocast_dtype(device)))
        self.modes = function_modes()
        self._unseen = not torch._C._is_torch_function_enabled()
        stack = range(torch._C._len_torch_dispatch_stack())
        self._dispatch = [torch._C._get_dispatch_stack_at(i) for i in stack]
        self._no_saved = torch._C._autograd._saved_tensors_hooks_get_disabled_error_message()
        self._saved = _saved_hooks()
        self._cuda = None
        if torch.cuda.is_available() and torch.cuda.is_initialized():
            self._cuda = torch.cuda.current_stream()
        self._held: list[Any] = []

    def put(self) -> None:
        """Make this thread as the other was."""
        for put, value in self._switches:
            put(value)
        if self._cuda is not None:
            torch.cuda.set_stream(self._cuda)  # its device too
        if self._inference:
            self._held.append(torch._C._InferenceMode(True))
        for device, dtype in self._autocast:
            torch.set_autocast_enabled(device, True)
            torch.set_autocast_dtype(device, dtype)
        if self._autocast:
            torch.autocast_increment_nesting()  # an autocast block that ends in here must not empty the other's cache
        for pair in self._saved:
            torch._C._autograd._push_saved_tensors_default_hooks(*pair)
        if self._no_saved is not None:
            torch._C._autograd._saved_tensors_hooks_disable(self._no_saved)
        for mode in self._dispatch:
            torch._C._push_on_torch_dispatch_stack(mode)
        for mode in self.modes:
            push_function_mode(mode)
        if self._unseen:
            guard = torch._C.DisableTorchFunction()
            guard.__enter__()
            self._held.append(guard)

    @staticmethod
    def clear() -> None:
        """Take off this thread what is an object of the user's, before it ends. Torch does so too, but at the very end,
        which nobody can wait for."""
        while mode_depth():
            pop_function_mode()
        while in_mode():
            torch._C._pop_torch_dispatch_stack(None)
        while top_hooks() is not None:
            pop_hooks()


def _saved_hooks() -> list[tuple[Any, Any]]:
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
        slots = (raw if many else [raw]) if SHOWS_SAVED else private_saved.slots(node, attribute, raw)
        for i, one in enumerate(slots):
            if one is not None:
                found.append((attribute[len("_raw_saved_") :] + (f"[{i}]" if many else ""), one))
    return found


def is_freed(node: Any) -> bool:
    """Whether a backward has freed what `node` had saved. No hook is run: a slot that is freed has none."""
    return read_saved(node, saved_attributes(type(node), node))[1] is True


def slot_content(slot: Any) -> tuple[Any, bool] | None:
    """What a saved-tensor slot holds, and whether a pair of hooks packed it. ``None``: nothing, or freed."""
    try:
        packed = slot.unpack_hook is not None
        return slot.data, packed
    except (RuntimeError, AttributeError):
        return None


def hidden_users(slot: Any) -> int:
    """Users of a slot's memory besides the tensor that `slot_content` gives: what torch keeps, where it makes a new
    tensor of it for each who asks."""
    return 0 if SHOWS_SAVED else int(slot.hidden_users)


def is_unseen(content: Any) -> bool:
    """Whether `content` stands for something packed that this torch does not show."""
    return isinstance(content, private_saved.Unseen)


def checkpoint_inputs(frame: Any) -> list[Any]:
    """The slots of the tensors that went into a region of a checkpoint that is not reentrant, from its frame object."""
    given = getattr(frame, "saved_args", None)
    if given is not None:
        return [value for value in given if hasattr(value, "unpack_hook")]
    saver = getattr(getattr(frame, "input_saver", None), "grad_fn", None)  # a node that torch makes to keep them
    # The first is a dummy of torch's that makes the node.
    return [slot for _, slot in saved_slots(saver)][1:] if saver is not None else []


def lists_its_tensors(node: Any) -> bool:
    """Whether the class of `node` tells what it has saved. ``False`` for nodes that C++ extensions define, of which
    Python sees a name only."""
    return type(node).__name__ != "CppFunction"


def top_hooks() -> tuple[Any, Any] | None:
    """The innermost pair of saved-tensor hooks of this thread."""
    return _top_hooks(True) if _top_hooks is not None else None


#: Put a pair on this thread's stack of saved-tensor hooks, and take the innermost off.
push_hooks = torch._C._autograd._push_saved_tensors_default_hooks
pop_hooks = torch._C._autograd._pop_saved_tensors_default_hooks


def current_node() -> Any:
    """The node that the engine runs on this thread, or ``None``."""
    return torch._C._current_autograd_node()


def storage_users(storage: torch.UntypedStorage) -> int:
    """Strong references to the memory: one for each tensor on it, and one for the Python object of the storage."""
    return int(torch._C._storage_Use_Count(storage._cdata))  # type: ignore[attr-defined]


def storage_key(storage: torch.UntypedStorage) -> int:
    """What tells two storages apart as long as both are alive."""
    return int(storage._cdata)


#: The engine's entry point that ``autograd.backward`` and ``autograd.grad`` call: (roots, their gradients, retain
#: graph, create graph, inputs, allow unused, accumulate). No inputs: all that can be reached. It goes through no
#: function mode.
run_engine = torch.autograd.Variable._execution_engine.run_backward


def root_gradients(roots: Sequence[Any], grads: Sequence[Any]) -> tuple[Any, ...]:
    """What a backward starts from: a one for each scalar root without a gradient. Raises what torch raises for those
    that do not fit."""
    return tuple(torch.autograd._make_grads(tuple(roots), tuple(grads), is_grads_batched=False))  # type: ignore


def post_accumulate_hooks(leaf: torch.Tensor) -> dict[int, Any]:
    """The hooks that run after the gradient of `leaf` is accumulated; the dict that torch reads."""
    return getattr(leaf, "_post_accumulate_grad_hooks", None) or {}
