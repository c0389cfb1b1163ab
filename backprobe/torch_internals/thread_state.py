"""Copies torch's thread-local state from one thread to another."""

from __future__ import annotations

import torch

from . import modes
from .saved_by_nodes import pop_hooks, push_hooks, stacked_hooks, top_hooks


def _autocast_devices() -> list[str]:
    """Return the device types that support autocast. Torch 2.8 does not list them."""
    listed = getattr(torch._C, "_autocast_supported_devices", None)
    if listed is not None:
        return list(listed())
    known = ("cpu", "cuda", "xpu", "mps", "hpu", "mtia", "xla", "ipu", torch._C._get_privateuse1_backend_name())
    return [device for device in known if torch._C._is_autocast_available(device)]


def autocast_now() -> tuple[tuple[str, object], ...]:
    """Return the device types for which autocast is on, each with its dtype."""
    on = (device for device in _autocast_devices() if torch.is_autocast_enabled(device))
    return tuple((device, torch.get_autocast_dtype(device)) for device in on)


def put_autocast(found: tuple[tuple[str, object], ...]) -> None:
    """Turn autocast on as `found` says, in this thread, which has not run torch yet."""
    for device, dtype in found:
        torch.set_autocast_enabled(device, True)
        torch.set_autocast_dtype(device, dtype)
    if found:
        torch.autocast_increment_nesting()  # an autocast block that ends here must not clear the other thread's cache


class ThreadState:
    """Torch's thread-local state, taken from one thread and applied to another that has not run torch yet.

    It includes gradient mode, inference mode, autocast, torch function modes (the default device is one), dispatch
    modes, saved-tensor hooks, whether they are allowed, the engine's switches, CUDA device and stream.
    """

    #: (function that reads the state, function that sets it)
    _SWITCHES = (
        (torch.is_grad_enabled, torch._C._set_grad_enabled),
        (torch._C._is_fwd_grad_enabled, torch._C._set_fwd_grad_enabled),
        (torch._C._is_multithreading_enabled, torch._C._set_multithreading_enabled),
        (torch._C._is_view_replay_enabled, torch._C._set_view_replay_enabled),
        (torch.is_autocast_cache_enabled, torch.set_autocast_cache_enabled),
    )

    def __init__(self) -> None:
        """Read torch's thread-local state of this thread."""
        self._switches = [(put, read()) for read, put in self._SWITCHES]
        self._inference = torch.is_inference_mode_enabled()
        self._autocast = autocast_now()
        self.modes = modes.function_modes()
        self._unseen = not torch._C._is_torch_function_enabled()
        stack = range(torch._C._len_torch_dispatch_stack())
        self._dispatch = [torch._C._get_dispatch_stack_at(i) for i in stack]
        self._no_saved = torch._C._autograd._saved_tensors_hooks_get_disabled_error_message()
        self._saved = stacked_hooks()
        self._cuda = None
        if torch.cuda.is_available() and torch.cuda.is_initialized():
            self._cuda = torch.cuda.current_stream()
        self._held: list[object] = []

    def put(self) -> None:
        """Give this thread the state that was read in another one; the thread has not run torch yet."""
        for put, value in self._switches:
            put(value)
        if self._cuda is not None:
            torch.cuda.set_stream(self._cuda)  # sets its device too
        if self._inference:
            self._held.append(torch._C._InferenceMode(True))
        put_autocast(self._autocast)
        for pair in self._saved:
            push_hooks(*pair)
        if self._no_saved is not None:
            torch._C._autograd._saved_tensors_hooks_disable(self._no_saved)
        for mode in self._dispatch:
            torch._C._push_on_torch_dispatch_stack(mode)
        for mode in self.modes:
            modes.push_function_mode(mode)
        if self._unseen:
            guard = torch._C.DisableTorchFunction()
            guard.__enter__()
            self._held.append(guard)

    @staticmethod
    def clear() -> None:
        """Remove the user's objects from this thread's state before the thread ends.

        Torch does so too, but only at the very end of the thread, after ``join`` may have returned.
        """
        while modes.mode_depth():
            modes.pop_function_mode()
        while modes.in_mode():
            torch._C._pop_torch_dispatch_stack(None)
        while top_hooks() is not None:
            pop_hooks()
