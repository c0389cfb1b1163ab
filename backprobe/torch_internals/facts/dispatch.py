"""Facts about modes: what they intercept, from which frames, and how ours and the user's are kept apart."""

from __future__ import annotations

import sys
import threading
import traceback
import warnings
from collections.abc import Callable, Mapping, Sequence
from types import CodeType, FrameType
from typing import Any

import torch
import torch.nn.functional as F
from torch._subclasses.fake_tensor import FakeTensorMode
from torch._subclasses.functional_tensor import FunctionalTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from .. import backward_by_name, code_objects, modes, uncompiled
from ..thread_state import ThreadState
from .registry import DYNAMO, ENGINE, OWN_PROCESS, expect, fact, leaf


class _Seen(TorchFunctionMode):
    """A mode that records each function with its keywords, the calling code, and that frame's optimizer, if any."""

    def __init__(self) -> None:
        """Begin without records."""
        super().__init__()
        self.calls: list[tuple[object, dict[str, object]]] = []
        self.codes: list[CodeType] = []
        self.owners: list[object] = []

    def __torch_function__(
        self,
        func: Callable[..., object],
        types: object,
        args: Sequence[object] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> object:
        """Record the call; run `func` and return its result."""
        frame = sys._getframe(1)
        self.calls.append((func, dict(kwargs or {})))
        self.codes.append(frame.f_code)
        self.owners.append(frame.f_locals.get(code_objects.OPTIMIZER))
        return func(*args, **(kwargs or {}))

    @property
    def functions(self) -> list[object]:
        """The functions seen so far, in the order of their calls."""
        return [func for func, _ in self.calls]


class _Dispatched(TorchDispatchMode):
    """A dispatch mode that records the names of the ops that it sees."""

    def __init__(self) -> None:
        """Begin without records."""
        super().__init__()
        self.ops: list[str] = []

    def __torch_dispatch__(
        self,
        func: Callable[..., object],
        types: object,
        args: Sequence[object] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> object:
        """Record the op; run it and return its result."""
        self.ops.append(str(func))
        return func(*args, **(kwargs or {}))


@fact(
    "function modes",
    "ops are not seen at all, or a mode of ours stays on where a backward raises",
    "DisableTorchFunction _EnableTorchFunction _len_torch_function_stack _get_function_stack_at "
    "_push_on_torch_function_stack _pop_torch_function_stack",
)
def function_modes() -> None:
    """Check that function modes can be pushed, listed, disabled and removed, and see the ops that they should see."""
    first, second, x = _Seen(), _Seen(), leaf()
    depth = modes.mode_depth()
    with first:
        modes.push_function_mode(second)
        expect(modes.function_modes()[depth:] == [first, second], "modes that are on cannot be listed")
        expect(modes.top_mode() is second and modes.mode_depth() == depth + 2, "the innermost mode cannot be read")
        x.exp()
        with modes.disable_function_modes():
            x.sin()
            with modes.enable_function_modes():
                x.cos()
        modes.drop_mode(second)
        expect(modes.top_mode() is first, "a mode cannot be taken off the stack")
    seen = [torch.Tensor.exp, torch.Tensor.cos]
    expect(first.functions == seen and second.functions == seen, f"modes saw {first.functions} and {second.functions}")
    modes.push_function_mode(first)
    expect(modes.pop_function_mode() is first and modes.mode_depth() == depth, "a mode cannot be popped")


@fact(
    "a mode that stays off",
    "scripts without modules and optimizers are watched op by op in all steps, whatever the budget",
    "_push_mode",
    [ENGINE],
)
def staying_off() -> None:
    """Check that a mode stays off the stack after the call in which it asked for that, and that ``come_back`` undoes
    it.
    """

    class Leaves(TorchFunctionMode):
        """A function mode that leaves the stack at its first call."""

        def __torch_function__(
            self,
            func: Callable[..., object],
            types: object,
            args: Sequence[object] = (),
            kwargs: Mapping[str, object] | None = None,
        ) -> object:
            """Ask that this mode is not pushed back; run `func` and return its result."""
            modes.stay_off(self)
            return func(*args, **(kwargs or {}))

    expect(modes.can_stay_off(), "torch.overrides has no function by the name that is known")
    depth, mode, outer = modes.mode_depth(), Leaves(), _Seen()
    modes.push_function_mode(mode)
    with outer:
        leaf().exp().sum().backward()
        expect(modes.top_mode() is outer and modes.mode_depth() == depth + 1, "the mode was put back")
    modes.come_back()
    expect(modes.mode_depth() == depth, "modes are not as they were")


@fact(
    "dispatch modes",
    "a dispatch mode of the user's sees ops that backprobe computes",
    "_python_dispatch _disable_current_modes _len_torch_dispatch_stack _get_dispatch_stack_at "
    "_DisableTorchDispatch _AutoDispatchBelowAutograd _pop_torch_dispatch_stack _push_on_torch_dispatch_stack",
    [DYNAMO],
)
def dispatch_modes() -> None:
    """Check that dispatch modes are noticed, hidden from and put back, and see only the ops that they should see."""
    x = leaf().detach()
    expect(not modes.in_mode() and modes.dispatch_modes() == 0, "a dispatch mode counts as on where none is")
    with _Dispatched() as mode:
        expect(modes.in_mode() and modes.dispatch_modes() == 1, "a dispatch mode that is on does not count")
        expect(modes.is_unsafe_to_read(x), "values count as safe to read under a dispatch mode")
        expect(modes.is_unsafe_to_read(x, ignores_our_modes=True), "a dispatch mode of the user's counts as ours")
        x.exp()
        with modes.hide_from_dispatch_modes():
            x.sin()
        expect(modes.in_mode() and modes.dispatch_modes() == 1, "a dispatch mode that was taken off is not put back")
        with modes.no_dispatch_modes():
            x.cos()
        with modes.below_autograd():
            below = leaf().tan()
    expect(below.grad_fn is None, "an op below autograd has made a node")
    expect(mode.ops == ["aten.exp.default"], f"a dispatch mode saw {mode.ops}")


@fact(
    "frames that are not compiled",
    "under torch.compile, ops and backward calls that run in Python are not seen, and the recompile limit is met early",
    "_dynamo _FrameAction _FrameExecStrategy",
    [DYNAMO],
)
def left_alone() -> None:
    """Check that Dynamo does not look at frames of marked code, nor at frames called by code that is marked as deep."""
    from torch._dynamo.types import ConvertFrameReturn

    looked_at: list[str] = []

    def look(frame: FrameType, *_: object) -> ConvertFrameReturn:
        """Record the name of a frame that Dynamo looks at, and let it run uncompiled; stands in for Dynamo's
        callback.
        """
        looked_at.append(frame.f_code.co_name)
        return ConvertFrameReturn()

    made: dict[str, Any] = {}  # in another file than ours, whose code may be marked
    exec("def inner(): ...\ndef passing(): inner()\ndef deep(): inner()", made)
    uncompiled.leave_alone(made["passing"].__code__)
    uncompiled.leave_alone(made["deep"].__code__, deep=True)
    frames: Any = torch._C._dynamo.eval_frame
    before = frames.set_eval_frame(look)
    try:
        made["passing"]()
        made["deep"]()
    finally:
        frames.set_eval_frame(before)
    expect(looked_at.count("inner") == 1, f"Dynamo looked at {looked_at}")
    expect("passing" not in looked_at and "deep" not in looked_at, f"Dynamo looked at {looked_at}")


@fact(
    "state of threads",
    "a backward that the debugger runs in its own thread may differ from one that runs alone",
    "_set_grad_enabled _is_fwd_grad_enabled _set_fwd_grad_enabled _is_multithreading_enabled "
    "_set_multithreading_enabled _is_view_replay_enabled _set_view_replay_enabled _is_torch_function_enabled "
    "_get_dispatch_stack_at _push_on_torch_dispatch_stack _pop_torch_dispatch_stack _saved_tensors_hooks_disable "
    "_saved_tensors_hooks_get_disabled_error_message _InferenceMode _autocast_supported_devices "
    "_get_privateuse1_backend_name _is_autocast_available",
)
def threads() -> None:
    """Check that a thread's state (modes, gradient mode, autocast, hooks) can be taken over by another and removed
    there.
    """
    mode = _Seen()
    found: list[object] = []
    no_hooks = torch.autograd.graph.disable_saved_tensors_hooks("not here")
    with torch.no_grad(), mode, _Dispatched(), no_hooks, torch.autocast("cpu", dtype=torch.bfloat16):
        state = ThreadState()

    def other() -> None:
        """Take over the state, note what is active, remove it, and note that again; runs in the other thread."""
        state.put()
        with modes.disable_function_modes():
            disabled = torch._C._autograd._saved_tensors_hooks_get_disabled_error_message()
            on = (torch.is_grad_enabled(), torch.is_autocast_enabled("cpu"), modes.in_mode(), disabled)
        found.append((*on, modes.function_modes()))
        state.clear()
        found.append((modes.mode_depth(), modes.in_mode()))

    thread = threading.Thread(target=other)
    thread.start()
    thread.join()
    expect(found == [(False, True, True, "not here", [mode]), (0, False)], f"another thread's state came as {found}")


@fact(
    "gradient mode",
    "where gradients were turned off is not named, and reentrant checkpoints are not recognised",
    "_set_grad_enabled GRAD_MODE_FILE DECORATOR_FILE DECORATED",
)
def gradient_mode() -> None:
    """Check the calls of ``no_grad``: the function that a mode sees, the calling file, and the frame of the
    decorator.
    """
    with _Seen() as mode, torch.no_grad():
        pass
    turned = [frame for func, frame in zip(mode.functions, mode.codes, strict=True) if func is modes.set_grad_enabled]
    expect(len(turned) == 2, f"no_grad showed the functions {mode.functions}")
    expect(all(c.co_filename == code_objects.GRAD_MODE_FILE for c in turned), f"no_grad called from {turned}")
    held: list[object] = []

    def decorated() -> None:
        """Record the function that the calling frame, the decorator's, decorates."""
        frame: FrameType = sys._getframe(1)
        held.append(frame.f_locals.get(code_objects.DECORATED) if code_objects.is_decorator(frame.f_code) else None)

    torch.no_grad()(decorated)()
    expect(held[0] is decorated, "the decorator no_grad() does not lead to its function")


@fact(
    "freezing a module",
    "what Module.requires_grad_() freezes is taken for a library's doing, and what stopped learning is told wrongly",
    "MODULE_FILE",
)
def freezing() -> None:
    """Check that ``Module.requires_grad_`` sets the parameters' attribute from the file of modules."""
    module = torch.nn.Module()
    module._parameters["weight"] = leaf()  # type: ignore[assignment]  # not registered: no global hooks
    with _Seen() as mode:
        module.requires_grad_(False)
    called = {
        code.co_filename for func, code in zip(mode.functions, mode.codes, strict=True) if "requires" in str(func)
    }
    expect(called == {code_objects.MODULE_FILE}, f"Module.requires_grad_() set it from {called}")


@fact(
    "the call of the engine",
    "the debugger cannot tell whose error stopped a backward",
    "ENGINE_CALL",
)
def engine_call() -> None:
    """Check that the traceback of an error in a backward passes the code that calls the engine."""

    class Raises(torch.autograd.Function):
        """A custom function whose backward raises."""

        @staticmethod
        def forward(ctx: object, x: torch.Tensor) -> torch.Tensor:
            """Return a copy of `x`."""
            return x.clone()

        @staticmethod
        def backward(ctx: object, grad: torch.Tensor) -> object:
            """Raise ``ValueError``."""
            raise ValueError("on purpose")

    codes = []
    try:
        Raises.apply(leaf()).sum().backward()
    except ValueError as error:
        codes = [frame.f_code for frame, _ in traceback.walk_tb(error.__traceback__)]
    expect(code_objects.ENGINE_CALL in codes, f"a backward went through {[code.co_name for code in codes]}")


@fact(
    "attributes that are read",
    "who reads .grad, .data and .is_leaf is not seen: no nonleaf-grad, no writes through .data, no optimizers",
)
def attributes() -> None:
    """Check that a mode sees reads of ``.grad``, ``.data`` and ``.is_leaf``."""
    x = leaf()
    with _Seen() as mode:
        _ = x.grad, x.data, x.is_leaf
    getters = [getattr(torch.Tensor, name).__get__ for name in ("grad", "data", "is_leaf")]
    expect(mode.functions == getters, f"a mode saw {mode.functions}")


@fact(
    "calls of backward",
    "backward calls are not seen",
    "_execution_engine",
    [ENGINE],
)
def backward_calls() -> None:
    """Check that a mode sees the three ways to call a backward."""
    x = leaf()
    with _Seen() as mode:
        backward_by_name.show(mode)
        try:
            x.sum().backward()
            torch.autograd.backward(x.sum())
            torch.autograd.grad(x.sum(), x)
        finally:
            backward_by_name.unshow(mode)
    entries = (torch.Tensor.backward, backward_by_name.seen, torch.autograd.grad)
    missed = [f.__qualname__ for f in entries if f not in mode.functions]
    expect(not missed, f"a mode was not shown {', '.join(missed)}")


@fact(
    "functions that write when told to",
    "writes of activations, dropout and normalisations are not noted: in-place errors name no line",
)
def told_to_write() -> None:
    """Check that a mode sees the keywords with which functions write to their arguments, and the names of in-place
    methods.
    """
    x, two = leaf().detach(), leaf(2).detach()
    weight = torch.ones((4, 2), dtype=torch.float32, device="cpu")
    with _Seen() as mode:
        F.relu(x, inplace=True)
        F.dropout(x, 0.5, training=False, inplace=True)
        F.batch_norm(weight, two, two, training=True)
        F.embedding(torch.zeros(1, dtype=torch.int64, device="cpu"), weight, max_norm=9.0)
    told = {func.__name__: kwargs for func, kwargs in mode.calls if func.__module__ == F.__name__}
    wanted = {"relu": "inplace", "dropout": "inplace", "batch_norm": "training", "embedding": "max_norm"}
    lost = [name for name, keyword in wanted.items() if not told.get(name, {}).get(keyword)]
    expect(not lost, f"a mode was not told that {', '.join(lost)} may write")
    called = [torch.Tensor.add_.__name__, torch.Tensor.__iadd__.__name__, torch.Tensor.__setitem__.__name__]
    expect(called == ["add_", "__iadd__", "__setitem__"], f"functions that write are called {called}")


@fact(
    "calls through Python",
    "a traceback of the user's shows frames of backprobe's",
    "HANDLE_TORCH_FUNCTION",
)
def through_python() -> None:
    """Check the code through which functions written in Python call a mode."""
    with _Seen() as mode:
        F.relu(leaf())
    expect(code_objects.HANDLE_TORCH_FUNCTION in mode.codes, f"a mode was called from {mode.codes}")


@fact(
    "optimizers' parameters",
    "the line that made an optimizer is not known: parameter-not-in-optimizer and unregistered-parameter name no line",
    "ADD_PARAM_GROUP OPTIMIZER",
)
def optimizers() -> None:
    """Check that a mode sees an optimizer read ``.is_leaf`` of a parameter, in the frame in which the optimizer is a
    local.
    """
    optimizer, x = object.__new__(torch.optim.Optimizer), leaf()
    optimizer.param_groups, optimizer.defaults = [], {}
    add: Any = torch.optim.Optimizer.add_param_group
    add = getattr(add, "__wrapped__", add)  # its decorator would load Dynamo
    with _Seen() as mode:
        add(optimizer, {"params": [x]})
    asks = torch.Tensor.is_leaf.__get__  # type: ignore[attr-defined]
    expect(asks in mode.functions, f"an optimizer asked for {mode.functions}")
    at = mode.functions.index(asks)
    expect(mode.codes[at] is code_objects.ADD_PARAM_GROUP, f"an optimizer asks in {mode.codes[at]}")
    expect(mode.owners[at] is optimizer, "the optimizer cannot be had from its own frame")


@fact(
    "transforms",
    "inside vmap and grad of torch.func backprobe reads values that are not there, and the script raises",
    "_functorch",
)
def transforms() -> None:
    """Check that tensors inside ``torch.func.vmap`` count as wrapped and unsafe to read, and those outside do not."""
    seen: list[object] = []

    def look(x: torch.Tensor) -> torch.Tensor:
        """Record how the checks count `x`, and return twice `x`."""
        seen.append((modes.in_transform(), modes.is_wrapped(x), modes.is_batched(x), modes.is_unsafe_to_read(x)))
        return x * 2

    x = leaf().detach()
    torch.func.vmap(look)(x)
    expect(seen == [(True,) * 4], f"inside vmap a tensor counts as {seen[0]}")
    outside = (modes.in_transform(), modes.is_wrapped(x), modes.is_batched(x), modes.is_unsafe_to_read(x))
    expect(outside == (False,) * 4, f"outside vmap a tensor counts as {outside}")


@fact(
    "tracing",
    "torch.jit.trace, torch.export and make_fx record what backprobe computes, or fail",
    "_get_tracing_state _TorchDispatchModeKey _get_dispatch_mode _dispatch_tls_is_dispatch_key_included DispatchKey "
    "_is_functional_tensor _subclasses",
    [OWN_PROCESS],
)
def tracing() -> None:
    """Check that each kind of tracing, and tensors without values, are recognised."""
    _jit_trace()
    _fake_and_proxy_modes()
    _symbolic_tensors()


def _fake_and_proxy_modes() -> None:
    """Check that fake tensors, ``make_fx`` and functionalization count as tracing, and a dispatch mode of the user does
    not.
    """
    seen: list[bool] = []

    def function(x: torch.Tensor) -> torch.Tensor:
        """Record whether a trace counts as active, and return `x` plus one."""
        seen.append(modes.tracing())
        return x + 1

    expect(not modes.tracing(), "a trace counts as going on where none is")
    with FakeTensorMode():
        function(leaf().detach())
    for options in ({}, {"tracing_mode": "symbolic"}, {"pre_dispatch": True}):
        make_fx(function, **options)(leaf().detach())
    with FunctionalTensorMode():
        seen.append(modes.tracing())
    with _Dispatched():
        expect(not modes.tracing(), "a dispatch mode of the user's counts as a trace")
    expect(seen == [True] * 5, f"fake tensors, three kinds of make_fx and functionalization count as {seen}")


def _symbolic_tensors() -> None:
    """Check that fake and functional tensors count as tensors without values, and a plain tensor does not."""
    with FakeTensorMode():
        fake = leaf()
    functional = torch._to_functional_tensor(leaf().detach())  # type: ignore[attr-defined]
    symbolic = [modes.is_symbolic(x) and modes.is_unsafe_to_read(x) for x in (fake, functional)]
    expect(symbolic == [True, True], f"a fake and a functional tensor count as without values: {symbolic}")
    expect(modes.has_dispatch(fake) and not modes.is_symbolic(leaf()), "a plain tensor counts as one without values")


def _jit_trace() -> None:
    """Check that ``torch.jit.trace`` counts as tracing."""
    seen: list[bool] = []

    def function(x: torch.Tensor) -> torch.Tensor:
        """Record whether a trace counts as active, and return `x` plus one."""
        seen.append(modes.jit_tracing() is not None)
        return x + 1

    expect(modes.jit_tracing() is None, "a trace counts as going on where none is")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # deprecated
        torch.jit.trace(function, leaf().detach(), check_trace=False)
    expect(seen == [True], "a trace that goes on does not count")


@fact(
    "profilers",
    "a profiler of the user's records ops that backprobe computes",
    "_profiler_enabled _enable_record_function",
    [OWN_PROCESS],
)
def profilers() -> None:
    """Check that an active profiler is noticed, and that ops can be hidden from it."""
    x = leaf().detach()
    expect(not modes.profiled(), "a profiler counts as on where none is")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # deprecated, but the only one that prints nothing
        with torch.autograd.profiler_legacy.profile() as profiler:
            on = modes.profiled()
            x.exp()
            with modes.hide_from_profiler():
                x.sin()
            x.cos()
    recorded = {event.key for event in profiler.key_averages()} & {"aten::exp", "aten::sin", "aten::cos"}
    expect(on and recorded == {"aten::exp", "aten::cos"}, f"a profiler recorded {sorted(recorded)}")
