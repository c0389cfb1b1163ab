"""What stands between a script and torch's ops: function and dispatch modes, profilers, transforms, tracing."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.overrides
from torch.utils._python_dispatch import _disable_current_modes, is_traceable_wrapper_subclass

#: True where Dynamo is tracing, which reads it as a constant: what follows ``if compiling(): return`` is not compiled
#: into the user's function.
compiling = torch.compiler.is_dynamo_compiling

#: What ``no_grad`` and ``set_grad_enabled`` call; a torch function mode sees it.
set_grad_enabled = torch._C._set_grad_enabled

#: ``with unseen():`` calls inside do not go through torch function modes.
unseen = torch._C.DisableTorchFunction

#: ``with seen():`` inside it: they do.
seen = torch._C._EnableTorchFunction

#: How many dispatch modes are on, and what ``torch.jit.trace`` records into while it does.
dispatch_modes, jit_tracing = torch._C._len_torch_dispatch_stack, torch._C._get_tracing_state

#: The level of the innermost ``torch.func`` transform; ``None`` outside.
transform_level = torch._C._functorch.maybe_current_level

#: Whether a tensor belongs to a ``torch.func`` transform, also one that is over.
is_wrapped = torch._C._functorch.is_functorch_wrapped_tensor

#: Whether a profiler records the ops of this thread.
profiled = torch._C._autograd._profiler_enabled

#: Marks dispatch modes of ours.
OURS = "of_backprobe"

#: Whether a profiler, where one is on, is to record the ops of this thread.
record_ops = torch._C._autograd._enable_record_function


_Key = torch._C._TorchDispatchModeKey
#: The keys of the dispatch modes that PyTorch traces with: fake tensors, proxies of ``make_fx``, functionalization.
_TRACING_KEYS = (_Key.FAKE, _Key.PROXY, _Key.FUNCTIONAL)
_dispatch_mode = torch._C._get_dispatch_mode
_is_key_included, _PRE_DISPATCH = torch._C._dispatch_tls_is_dispatch_key_included, torch._C.DispatchKey.PreDispatch
_NO_DISPATCH = torch.Tensor.__torch_dispatch__


def tracing() -> bool:
    """Whether PyTorch traces in this thread: ops are written down as a graph, and compute nothing of the script's.

    Note [Stand aside in a trace]: in ``torch.jit.trace``, ``make_fx``, ``torch.export``, AOT Autograd and under
    ``FakeTensorMode`` every op of ours would enter the script's graph, and every number that we read would be a
    constant, a guard, or an unbacked symbol in it. So the handlers of modes and of module hooks return at once there,
    and what was not watched is counted. ``hands_off`` says the same of one tensor: the two are the only places that
    know the kinds of tracing."""
    return (
        jit_tracing() is not None
        or (dispatch_modes() > 0 and any(_dispatch_mode(key) is not None for key in _TRACING_KEYS))
        or _is_key_included(_PRE_DISPATCH)
    )


def has_dispatch(tensor: Any) -> bool:
    """Whether the class of `tensor` computes in ``__torch_dispatch__``, as wrapper subclasses do (``DTensor``, a jagged
    nested tensor, a fake tensor).

    Note [No subclass below dispatch]: an op on such a tensor while dispatch to Python is off reaches a kernel that
    reads its memory, and it has none: the process crashes. So the dispatcher's part for Python is turned off only
    around tensors for which this is false."""
    return type(tensor).__torch_dispatch__ is not _NO_DISPATCH


def is_symbolic(tensor: Any) -> bool:
    """Whether `tensor` stands for values that a trace does not have: a fake or functional tensor, or a wrapper subclass
    with one inside."""
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
    """The classes of fake and functional tensors, as far as their modules are loaded."""
    places = (("fake_tensor", "FakeTensor"), ("functional_tensor", "FunctionalTensor"))
    loaded = ((sys.modules.get(f"torch._subclasses.{module}"), name) for module, name in places)
    return tuple(getattr(module, name) for module, name in loaded if hasattr(module, name))


_ASIDE = "backprobe: aside"
_forget = getattr(torch._C, "_remove_obj_from_tls", None)  # not in torch 2.8


class aside:
    """Backward calls inside answer a question of ours: hooks that keep what comes to the user let them pass. The mark
    goes with a call to the threads of the engine."""

    __slots__ = ("_before",)

    def __enter__(self) -> None:
        self._before = is_aside()
        torch._C._stash_obj_in_tls(_ASIDE, True)

    def __exit__(self, *error: object) -> None:
        if self._before or _forget is None:
            torch._C._stash_obj_in_tls(_ASIDE, self._before)
        else:  # nothing stays: a thread that ends lets go of its objects, and that can be too late for Python
            _forget(_ASIDE)


def is_aside() -> bool:
    return torch._C._is_key_in_tls(_ASIDE) and bool(torch._C._get_obj_in_tls(_ASIDE))


def mode_depth() -> int:
    """Number of torch function modes on this thread's stack."""
    return int(torch._C._len_torch_function_stack())


def function_modes() -> list[Any]:
    """The torch function modes of this thread, outermost first."""
    return [torch._C._get_function_stack_at(i) for i in range(torch._C._len_torch_function_stack())]


def top_mode() -> Any:
    """The innermost torch function mode of this thread."""
    depth = mode_depth()
    return torch._C._get_function_stack_at(depth - 1) if depth else None


def push_function_mode(mode: Any) -> None:
    torch._C._push_on_torch_function_stack(mode)


def pop_function_mode() -> Any:
    return torch._C._pop_torch_function_stack()


def drop_mode(mode: Any) -> None:
    """Take `mode` off this thread's stack of torch function modes, whatever was put on it since."""
    if not any(torch._C._get_function_stack_at(i) is mode for i in range(mode_depth())):
        return
    above = []
    while (top := torch._C._pop_torch_function_stack()) is not mode:
        above.append(top)
    for other in reversed(above):
        torch._C._push_on_torch_function_stack(other)


def put_mode(mode: Any, depth: int) -> None:
    """Put `mode` on this thread's stack of torch function modes, above the `depth` outermost: those that are on keep
    their places, and whoever put one on top takes it off again."""
    above = []
    while mode_depth() > depth:
        above.append(torch._C._pop_torch_function_stack())
    for other in (mode, *reversed(above)):
        torch._C._push_on_torch_function_stack(other)


#: What torch puts a mode back with when the call is over that the mode has handled; ``None`` where it has none by that
#: name.
_push = getattr(torch.overrides, "_push_mode", None)


def can_stay_off() -> bool:
    """Whether ``stay_off`` can do what it says."""
    return _push is not None and torch.overrides._push_mode is _push  # type: ignore[attr-defined]


def stay_off(mode: Any) -> None:
    """`mode` handles a call of a function that is written in Python, and is off meanwhile: torch is not to put it back
    when the call is over. ``come_back`` undoes it before that."""

    def push(other: Any) -> None:
        if other is mode:
            come_back()
        else:
            _push(other)  # type: ignore[misc]

    torch.overrides._push_mode = push  # type: ignore[attr-defined]


def come_back() -> None:
    """Modes are put back by torch as ever."""
    if _push is not None:
        torch.overrides._push_mode = _push  # type: ignore[attr-defined]


def depth_of(mode: Any) -> int | None:
    """How many torch function modes are on below `mode`; ``None`` where it is off."""
    return next((i for i in range(mode_depth()) if torch._C._get_function_stack_at(i) is mode), None)


def in_mode() -> bool:
    """Whether a dispatch mode is on."""
    return bool(torch._C._len_torch_dispatch_stack() > 0)


def in_mode_of_others() -> bool:
    """Whether a dispatch mode is on that we have not put on ourselves."""
    on = range(torch._C._len_torch_dispatch_stack())
    return not all(getattr(torch._C._get_dispatch_stack_at(i), OURS, False) for i in on)


def put_dispatch_mode(mode: Any) -> None:
    """Put a dispatch mode of ours on, innermost of this thread's."""
    setattr(mode, OURS, True)
    mode.__enter__()


def drop_dispatch_mode(mode: Any) -> None:
    """Take a dispatch mode off, whatever was put on since."""
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
    """Take off those of ours that are still on: what was to do that may have failed."""
    for mode in [torch._C._get_dispatch_stack_at(i) for i in range(torch._C._len_torch_dispatch_stack())]:
        if getattr(mode, OURS, False):
            drop_dispatch_mode(mode)


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
def no_dispatch_modes() -> Iterator[None]:
    """Without dispatch modes of the user's: ops inside, of subclasses too, go through none."""
    if not in_mode():
        yield
        return
    with _disable_current_modes():
        yield


@contextmanager
def below_autograd() -> Iterator[None]:
    """What is computed inside is seen by no mode, makes no node and raises no version. Not for tensors with
    ``has_dispatch``: Note [No subclass below dispatch]."""
    with torch._C._AutoDispatchBelowAutograd(), unseen(), torch._C._DisableTorchDispatch():
        yield


@contextmanager
def undispatched() -> Iterator[None]:
    """Dispatch modes do not see the ops inside. They are taken off, as torch does it: to turn the dispatcher's part for
    Python off would reach subclasses too, which have no values without it, and reading what has no storage crashes."""
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
def unnoticed() -> Iterator[None]:
    """Both."""
    with unprofiled(), undispatched():
        yield


class measuring:
    """Tensors of the script's are measured inside: no mode and no profiler sees it, and no graph is made. Both and
    ``no_grad`` at a quarter of their time, where neither a dispatch mode nor a profiler is on."""

    __slots__ = ("_grad", "_hidden", "_unseen")

    def __enter__(self) -> None:
        self._unseen = unseen()
        self._unseen.__enter__()
        self._hidden = unnoticed() if profiled() or in_mode() else None
        if self._hidden is not None:
            self._hidden.__enter__()
        self._grad = torch.is_grad_enabled()
        set_grad_enabled(False)

    def __exit__(self, *error: Any) -> None:
        set_grad_enabled(self._grad)
        try:
            if self._hidden is not None:
                self._hidden.__exit__(*error)
        finally:
            self._unseen.__exit__(*error)


def in_transform() -> bool:
    """Whether a ``torch.func`` transform is going on in this thread."""
    return torch._C._functorch.maybe_current_level() is not None


@contextmanager
def untransformed() -> Iterator[None]:
    """Ops inside take plain tensors for what they are, also where a ``torch.func`` transform is going on."""
    if not in_transform():
        yield
        return
    from torch._functorch.pyfunctorch import temporarily_clear_interpreter_stack  # slow, and loaded by now

    with temporarily_clear_interpreter_stack():
        yield


def is_batched(tensor: torch.Tensor) -> bool:
    """Whether `tensor` stands for many at once inside ``vmap`` (``is_grads_batched``)."""
    functorch = torch._C._functorch
    return bool(functorch.is_batchedtensor(tensor) or functorch.is_legacy_batchedtensor(tensor))


def one_by_one(tensor: torch.Tensor) -> list[torch.Tensor]:
    """The plain tensors that `tensor` stands for inside transforms: one, or many inside ``vmap`` and
    ``is_grads_batched``, which still has a way of its own."""
    functorch = torch._C._functorch
    if functorch.is_legacy_batchedtensor(tensor):
        parts = [tensor]
        level = torch._C._vmapmode_increment_nesting()
        torch._C._vmapmode_decrement_nesting()
        while level > 1 and functorch.is_legacy_batchedtensor(parts[0]):
            level -= 1  # without a batch of this level it has one of size 1 now
            parts = [one for part in parts for one in torch._remove_batch_dim(part, level, 1, 0).unbind()]
        return parts
    dims = []
    while functorch.is_functorch_wrapped_tensor(tensor):
        if functorch.is_batchedtensor(tensor):
            dims.append(functorch.maybe_get_bdim(tensor))
        tensor = functorch.get_unwrapped(tensor)
    for front, dim in enumerate(reversed(dims)):  # each counts without those inside it
        tensor = tensor.movedim(dim + front, front)
    return list(tensor.flatten(0, len(dims) - 1).unbind()) if dims else [tensor]


def is_plain(tensor: Any) -> bool:
    """Whether `tensor` is of no subclass that does its work under dispatch modes."""
    return type(tensor) in (torch.Tensor, torch.nn.Parameter)


def hands_off(tensor: torch.Tensor, past_ours: bool = False) -> bool:
    """Whether reading `tensor`'s values here would disturb or mislead: while PyTorch traces, inside a ``torch.func``
    transform, under a dispatch mode, in a CUDA graph capture, on the meta device, and for a tensor without values. See
    Note [Stand aside in a trace]. `past_ours`: modes do not see the read (``undispatched``), so that those of our own
    are no reason."""
    return bool(
        torch._C._functorch.maybe_current_level() is not None
        or (in_mode_of_others() if past_ours else in_mode())
        or tracing()
        or (not tensor.is_cpu and (tensor.is_meta or (tensor.is_cuda and torch.cuda.is_current_stream_capturing())))
        or is_symbolic(tensor)
    )
