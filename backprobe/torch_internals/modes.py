"""Function modes, dispatch modes, profilers, transforms and tracing: the layers between a script and torch's ops."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.overrides
from torch.utils._python_dispatch import _disable_current_modes, is_traceable_wrapper_subclass

#: True while Dynamo traces. Dynamo reads it as a constant, so code after ``if compiling(): return`` is not compiled
#: into the user's function.
compiling = torch.compiler.is_dynamo_compiling

#: The function that ``no_grad`` and ``set_grad_enabled`` call; torch function modes intercept it.
set_grad_enabled = torch._C._set_grad_enabled

#: ``with disable_function_modes():`` disables torch function modes for the calls inside.
disable_function_modes = torch._C.DisableTorchFunction

#: ``with enable_function_modes():`` inside ``disable_function_modes()`` enables them again.
enable_function_modes = torch._C._EnableTorchFunction

#: The number of active dispatch modes, and the tracing state of ``torch.jit.trace`` (``None`` if it does not trace).
dispatch_modes, jit_tracing = torch._C._len_torch_dispatch_stack, torch._C._get_tracing_state

#: The level of the innermost ``torch.func`` transform; ``None`` outside.
transform_level = torch._C._functorch.maybe_current_level

#: Whether a tensor belongs to a ``torch.func`` transform, including one that has ended.
is_wrapped = torch._C._functorch.is_functorch_wrapped_tensor

#: Whether a profiler records the ops of this thread.
profiled = torch._C._autograd._profiler_enabled

#: Name of the attribute that marks backprobe's own dispatch modes.
OURS = "of_backprobe"

#: Switches recording of this thread's ops on or off in an active profiler.
_enable_record_function = torch._C._autograd._enable_record_function

#: Whether ops of this thread are hidden from profilers.
_unprofiled = threading.local()


_Key = torch._C._TorchDispatchModeKey
#: The keys of the dispatch modes that PyTorch traces with: fake tensors, proxies of ``make_fx``, functionalization.
_TRACING_KEYS = (_Key.FAKE, _Key.PROXY, _Key.FUNCTIONAL)
_dispatch_mode = torch._C._get_dispatch_mode
_is_key_included, _PRE_DISPATCH = torch._C._dispatch_tls_is_dispatch_key_included, torch._C.DispatchKey.PreDispatch
_NO_DISPATCH = torch.Tensor.__torch_dispatch__


def tracing() -> bool:
    """Return whether PyTorch is tracing in this thread: ops are recorded into a graph and compute no real values.

    Note [Stand aside in a trace]: in ``torch.jit.trace``, ``make_fx``, ``torch.export``, AOT Autograd and under
    ``FakeTensorMode``, every op that backprobe runs would enter the script's graph, and every number that it reads
    would become a constant, a guard or an unbacked symbol in that graph. The handlers of modes and module hooks
    therefore return at once during a trace, and the calls that they skipped are counted. ``is_unsafe_to_read`` makes
    the same check for one tensor; only these two functions know the kinds of tracing.
    """
    return (
        jit_tracing() is not None
        or (dispatch_modes() > 0 and any(_dispatch_mode(key) is not None for key in _TRACING_KEYS))
        or _is_key_included(_PRE_DISPATCH)
    )


def has_dispatch(tensor: torch.Tensor) -> bool:
    """Return whether the class of `tensor` computes in ``__torch_dispatch__``, as wrapper subclasses do.

    Examples are ``DTensor``, a jagged nested tensor and a fake tensor.

    Note [No subclass below dispatch]: if the dispatcher's Python key is disabled, an op on such a tensor reaches a
    kernel that reads the tensor's memory. It has none, so the process crashes. The Python key is therefore disabled
    only around tensors for which this function returns false.
    """
    return type(tensor).__torch_dispatch__ is not _NO_DISPATCH


def is_symbolic(tensor: object) -> bool:
    """Return whether `tensor` has no values because of a trace: a fake or functional tensor, or a wrapper subclass that
    contains one.
    """
    if not has_dispatch(tensor):
        return torch._is_functional_tensor(tensor)  # type: ignore[attr-defined, no-any-return]
    if isinstance(tensor, _symbolic_classes()):
        return True
    if not is_traceable_wrapper_subclass(tensor):
        return False
    try:
        names = tensor.__tensor_flatten__()[0]  # type: ignore[attr-defined]
        return any(is_symbolic(getattr(tensor, name)) for name in names)
    except Exception:  # the script's own class
        return False


def _symbolic_classes() -> tuple[type, ...]:
    """Return the classes of fake and functional tensors whose modules are loaded."""
    places = (("fake_tensor", "FakeTensor"), ("functional_tensor", "FunctionalTensor"))
    loaded = ((sys.modules.get(f"torch._subclasses.{module}"), name) for module, name in places)
    return tuple(getattr(module, name) for module, name in loaded if hasattr(module, name))


_ASIDE = "backprobe: aside"
_forget = getattr(torch._C, "_remove_obj_from_tls", None)  # not in torch 2.8


class aside:
    """Context that marks the backward calls inside as backprobe's own.

    Hooks that store values for the user ignore such calls. The mark propagates to the engine's threads during a call.
    """

    __slots__ = ("_before",)

    def __enter__(self) -> None:
        """Set the mark for this thread, and remember whether it was set before."""
        self._before = is_aside()
        torch._C._stash_obj_in_tls(_ASIDE, True)

    def __exit__(self, *error: object) -> None:
        """Restore the mark as it was before."""
        if self._before or _forget is None:
            torch._C._stash_obj_in_tls(_ASIDE, self._before)
        else:  # leave nothing: a thread that ends releases its objects, possibly too late for Python
            _forget(_ASIDE)


def is_aside() -> bool:
    """Return whether this thread runs inside ``aside``."""
    return torch._C._is_key_in_tls(_ASIDE) and bool(torch._C._get_obj_in_tls(_ASIDE))


def mode_depth() -> int:
    """Return the number of torch function modes on this thread's stack."""
    return int(torch._C._len_torch_function_stack())


def function_modes() -> list[object]:
    """Return the torch function modes of this thread, outermost first."""
    return [torch._C._get_function_stack_at(i) for i in range(torch._C._len_torch_function_stack())]


def top_mode() -> object:
    """Return the innermost torch function mode of this thread; ``None`` if there is none."""
    depth = mode_depth()
    return torch._C._get_function_stack_at(depth - 1) if depth else None


def push_function_mode(mode: object) -> None:
    """Make `mode` this thread's innermost torch function mode."""
    torch._C._push_on_torch_function_stack(mode)


def pop_function_mode() -> object:
    """Remove this thread's innermost torch function mode, and return it."""
    return torch._C._pop_torch_function_stack()


def drop_mode(mode: object) -> None:
    """Remove `mode` from this thread's stack of torch function modes, even if other modes were pushed after it."""
    if not any(torch._C._get_function_stack_at(i) is mode for i in range(mode_depth())):
        return
    above = []
    while (top := torch._C._pop_torch_function_stack()) is not mode:
        above.append(top)
    for other in reversed(above):
        torch._C._push_on_torch_function_stack(other)


def put_mode(mode: object, depth: int) -> None:
    """Insert `mode` into this thread's stack of torch function modes, above the `depth` outermost.

    The modes above it keep their order, so each is still popped by the code that pushed it.
    """
    above = []
    while mode_depth() > depth:
        above.append(torch._C._pop_torch_function_stack())
    for other in (mode, *reversed(above)):
        torch._C._push_on_torch_function_stack(other)


#: The function with which torch pushes a mode back after the mode handled a call; ``None`` if this torch has none of
#: that name.
_push = getattr(torch.overrides, "_push_mode", None)


def can_stay_off() -> bool:
    """Return whether ``stay_off`` works with this torch, and nothing has patched ``_push_mode``."""
    return _push is not None and torch.overrides._push_mode is _push  # type: ignore[attr-defined]


def stay_off(mode: object) -> None:
    """Prevent torch from pushing `mode` back after a Python function that the mode is handling returns.

    torch pops a mode while its handler runs. ``come_back`` undoes this function.
    """

    def push(other: object) -> None:
        """Push mode `other` back as torch does, or restore torch's own function if it is the mode that stays off."""
        if other is mode:
            come_back()
        else:
            _push(other)  # type: ignore[misc]

    torch.overrides._push_mode = push  # type: ignore[attr-defined]


def come_back() -> None:
    """Restore torch's own ``_push_mode`` after ``stay_off``."""
    if _push is not None:
        torch.overrides._push_mode = _push  # type: ignore[attr-defined]


def depth_of(mode: object) -> int | None:
    """Return the number of torch function modes below `mode` on the stack, or ``None`` if it is not active."""
    return next((i for i in range(mode_depth()) if torch._C._get_function_stack_at(i) is mode), None)


def in_mode() -> bool:
    """Return whether a dispatch mode is active."""
    return bool(torch._C._len_torch_dispatch_stack() > 0)


def in_mode_of_others() -> bool:
    """Return whether a dispatch mode is active that backprobe did not push."""
    on = range(torch._C._len_torch_dispatch_stack())
    return not all(getattr(torch._C._get_dispatch_stack_at(i), OURS, False) for i in on)


def put_dispatch_mode(mode: Any) -> None:
    """Push one of backprobe's dispatch modes as this thread's innermost."""
    setattr(mode, OURS, True)
    mode.__enter__()


def drop_dispatch_mode(mode: object) -> None:
    """Remove a dispatch mode, even if other modes were pushed after it."""
    above = []
    while torch._C._len_torch_dispatch_stack():
        top = torch._C._get_dispatch_stack_at(torch._C._len_torch_dispatch_stack() - 1)
        if top is mode:
            mode.__exit__(None, None, None)
            break
        above.append(torch._C._pop_torch_dispatch_stack(None))
    for other in reversed(above):
        torch._C._push_on_torch_dispatch_stack(other)


def drop_our_dispatch_modes() -> None:
    """Remove backprobe's dispatch modes that are still active because the code that should pop them failed."""
    for mode in [torch._C._get_dispatch_stack_at(i) for i in range(torch._C._len_torch_dispatch_stack())]:
        if getattr(mode, OURS, False):
            drop_dispatch_mode(mode)


def record_ops(shown: bool) -> None:
    """Show the ops of this thread to profilers, or hide them."""
    _unprofiled.is_inside = not shown
    _enable_record_function(shown)


@contextmanager
def hide_from_profiler() -> Iterator[None]:
    """Hide the ops inside from the user's profiler.

    A profiler that reads kernels from an accelerator still records them. Blocks may be nested.
    """
    if not profiled() or getattr(_unprofiled, "is_inside", False):
        yield
        return
    record_ops(False)
    try:
        yield
    finally:
        record_ops(True)


@contextmanager
def no_dispatch_modes() -> Iterator[None]:
    """Disable all dispatch modes for the ops inside, also backprobe's own, and including ops on subclasses."""
    if not in_mode():
        yield
        return
    with _disable_current_modes():
        yield


@contextmanager
def below_autograd() -> Iterator[None]:
    """Run ops below autograd: no mode intercepts them, they create no node and do not increment versions.

    Not for tensors with ``has_dispatch``: Note [No subclass below dispatch].
    """
    with torch._C._AutoDispatchBelowAutograd(), disable_function_modes(), torch._C._DisableTorchDispatch():
        yield


@contextmanager
def hide_from_dispatch_modes() -> Iterator[None]:
    """Hide the ops inside from all dispatch modes.

    The modes are popped, as torch does it. Disabling the dispatcher's Python key would affect subclasses too: they have
    no storage, and reading it crashes.
    """
    count = torch._C._len_torch_dispatch_stack()
    if not count:
        yield
        return
    off = [torch._C._pop_torch_dispatch_stack(None) for _ in range(count)]
    try:
        yield
    finally:
        for mode in reversed(off):
            torch._C._push_on_torch_dispatch_stack(mode)


@contextmanager
def hide_ops() -> Iterator[None]:
    """Hide the ops inside from the user's profiler and from all dispatch modes."""
    with hide_from_profiler(), hide_from_dispatch_modes():
        yield


class measuring:
    """Context in which backprobe measures the script's tensors: no mode or profiler intercepts it, and no graph is
    built.

    Takes a quarter of the time of ``hide_ops`` with ``no_grad`` if no dispatch mode or profiler is active.
    """

    __slots__ = ("_grad", "_hidden", "_unseen")

    def __enter__(self) -> None:
        """Disable function modes and gradients, and hide ops from dispatch modes and profilers if any are active."""
        self._unseen = disable_function_modes()
        self._unseen.__enter__()
        self._hidden = hide_ops() if profiled() or in_mode() else None
        if self._hidden is not None:
            self._hidden.__enter__()
        self._grad = torch.is_grad_enabled()
        set_grad_enabled(False)

    def __exit__(self, *error: Any) -> None:
        """Restore modes, profiler and gradient mode as they were before."""
        set_grad_enabled(self._grad)
        try:
            if self._hidden is not None:
                self._hidden.__exit__(*error)
        finally:
            self._unseen.__exit__(*error)


def in_transform() -> bool:
    """Return whether a ``torch.func`` transform is active in this thread."""
    return torch._C._functorch.maybe_current_level() is not None


@contextmanager
def suspend_transforms() -> Iterator[None]:
    """Suspend active ``torch.func`` transforms, so that ops inside treat plain tensors as plain."""
    if not in_transform():
        yield
        return
    from torch._functorch.pyfunctorch import temporarily_clear_interpreter_stack  # slow, and loaded by now

    with temporarily_clear_interpreter_stack():
        yield


def is_batched(tensor: torch.Tensor) -> bool:
    """Return whether `tensor` is batched inside ``vmap`` or ``is_grads_batched``."""
    functorch = torch._C._functorch
    return bool(functorch.is_batchedtensor(tensor) or functorch.is_legacy_batchedtensor(tensor))


def unbatched_tensors(tensor: torch.Tensor) -> list[torch.Tensor]:
    """Return the plain tensors that `tensor` stands for inside transforms.

    That is one tensor, or several inside ``vmap`` and ``is_grads_batched`` (which still uses the legacy
    implementation).
    """
    functorch = torch._C._functorch
    if functorch.is_legacy_batchedtensor(tensor):
        parts = [tensor]
        level = torch._C._vmapmode_increment_nesting()
        torch._C._vmapmode_decrement_nesting()
        while level > 1 and functorch.is_legacy_batchedtensor(parts[0]):
            level -= 1  # without a batch at this level it now has one of size 1
            parts = [one for part in parts for one in torch._remove_batch_dim(part, level, 1, 0).unbind()]
        return parts
    dims = []
    while functorch.is_functorch_wrapped_tensor(tensor):
        if functorch.is_batchedtensor(tensor):
            dims.append(functorch.maybe_get_bdim(tensor))
        tensor = functorch.get_unwrapped(tensor)
    for front, dim in enumerate(reversed(dims)):  # each index does not count the batch dimensions inside it
        tensor = tensor.movedim(dim + front, front)
    return list(tensor.flatten(0, len(dims) - 1).unbind()) if dims else [tensor]


def is_plain(tensor: object) -> bool:
    """Return whether `tensor` is a plain tensor or parameter, not a subclass with its own dispatch."""
    return type(tensor) in (torch.Tensor, torch.nn.Parameter)


def is_dense(tensor: torch.Tensor) -> bool:
    """Return whether `tensor` is a plain tensor or parameter that has a shape and one block of memory."""
    return is_plain(tensor) and tensor.layout is torch.strided and not tensor.is_nested


def is_unsafe_to_read(tensor: torch.Tensor, ignores_our_modes: bool = False) -> bool:
    """Return whether reading `tensor`'s values here would disturb the script or mislead.

    True while PyTorch traces, inside a ``torch.func`` transform, under a dispatch mode, in a CUDA graph capture, on the
    meta device, and for a tensor without values. See Note [Stand aside in a trace].

    :param ignores_our_modes: the read is hidden from dispatch modes (``hide_from_dispatch_modes``), so backprobe's own
        modes do not count.
    """
    return bool(
        torch._C._functorch.maybe_current_level() is not None
        or (in_mode_of_others() if ignores_our_modes else in_mode())
        or tracing()
        or (not tensor.is_cpu and (tensor.is_meta or (tensor.is_cuda and torch.cuda.is_current_stream_capturing())))
        or is_symbolic(tensor)
    )
