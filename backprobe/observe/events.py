"""Event definitions and dispatch.

Note [Events]: ``Events`` has one ``Event`` for each event method of ``Tracker``, with the types of that method's
parameters. ``Events.attach`` registers the event methods that a listener defines, after checking that they take as many
arguments as the event has, and returns a function that removes them. The listeners of an event are a tuple that is read
anew each time the event is emitted: a listener may be removed while the event is being emitted. An exception in a
listener is an internal error: it is counted, the other listeners are called all the same, and after
``MAX_LISTENER_FAULTS`` errors in a row the listener is removed. The script never sees such an exception.
"""

from __future__ import annotations

from collections.abc import Callable
from inspect import CO_VARARGS, unwrap
from typing import Any, Concatenate, Generic, ParamSpec

from .faults import Faults
from .own_time import OwnTime
from .tracker import Tracker

P = ParamSpec("P")
#: Errors in a row after which a listener is removed.
MAX_LISTENER_FAULTS = 20
#: Errors in shared parts, without a recorded backward call in between, after which the session ends.
MAX_SHARED_FAULTS = 10 * MAX_LISTENER_FAULTS


class _FailingListener:
    """A listener whose owner has failed before. Counts the consecutive errors of all listeners of its owner."""

    def __init__(self, listener: Callable[..., object], owner: object, errors: list[int]) -> None:
        self.listener, self.__self__, self.errors = listener, owner, errors

    def __call__(self, *args: object) -> object:
        """Call the listener; if it returns, the row of errors is over."""
        result = self.listener(*args)
        self.errors[0] = 0
        return result


class Event(Generic[P]):
    """The listeners of one event.

    :ivar listeners: in the order in which they are called. Hot paths loop over them directly.
    """

    __slots__ = ("_events", "listeners", "name")

    def __init__(self, name: str, events: Events) -> None:
        """Start without listeners."""
        self.name, self._events = name, events
        self.listeners: tuple[Callable[P, object], ...] = ()

    def add(self, listener: Callable[P, object]) -> None:
        """Call `listener` too, after the listeners that are registered already."""
        self.listeners = (*self.listeners, listener)

    def remove(self, listener: Callable[P, object]) -> None:
        """Remove `listener`, if it is registered."""
        self.listeners = tuple(one for one in self.listeners if getattr(one, "listener", one) != listener)

    def emit(self, *args: P.args, **kwargs: P.kwargs) -> None:
        """Call all listeners; count their errors."""
        for listener in self.listeners:
            try:
                listener(*args, **kwargs)
            except Exception as error:
                self._events.listener_failed(listener, error)


class Events:
    """All events, and what happens if listeners or shared parts of the session fail; see Note [Events].

    :param give_up: called if shared parts, or a listener that is ``vital``, fail again and again.
    """

    def __init__(self, give_up: Callable[[BaseException], None] = lambda error: None) -> None:
        """Make an event for each event method of ``Tracker``."""
        self.faults = Faults()
        self._shared_faults = 0
        #: The time that our own work takes.
        self.own = OwnTime()
        self._give_up = give_up
        self.by_name: dict[str, Event[Any]] = {}
        event = self._event
        # A session
        self.observing_begins = event(Tracker.observing_begins)
        self.observing_pauses = event(Tracker.observing_pauses)
        self.ended = event(Tracker.ended)
        # Steps
        self.step_begins = event(Tracker.step_begins)
        self.step_finished = event(Tracker.step_finished)
        self.step_ended = event(Tracker.step_ended)
        self.fast_path_ended = event(Tracker.fast_path_ended)
        self.fast_path_optimizer_stepped = event(Tracker.fast_path_optimizer_stepped)
        self.measurement_begins = event(Tracker.measurement_begins)
        self.measurement_ended = event(Tracker.measurement_ended)
        self.alarm = event(Tracker.alarm)
        self.optimizer_begins = event(Tracker.optimizer_begins)
        self.closure_step_begins = event(Tracker.closure_step_begins)
        self.builtin_optimizer_begins = event(Tracker.builtin_optimizer_begins)
        self.optimizer_ended = event(Tracker.optimizer_ended)
        # Modules
        self.forward_begins = event(Tracker.forward_begins)
        self.root_found = event(Tracker.root_found)
        self.region_entered = event(Tracker.region_entered)
        self.mode_query_begins = event(Tracker.mode_query_begins)
        self.mode_query_ends = event(Tracker.mode_query_ends)
        self.jit_trace_begins = event(Tracker.jit_trace_begins)
        self.jit_trace_ends = event(Tracker.jit_trace_ends)
        self.stateful_module_called = event(Tracker.stateful_module_called)
        self.stateful_module_returned = event(Tracker.stateful_module_returned)
        self.module_returned = event(Tracker.module_returned)
        self.first_module_returned = event(Tracker.first_module_returned)
        self.hooked_module_returned = event(Tracker.hooked_module_returned)
        self.unregistered_module_called = event(Tracker.unregistered_module_called)
        self.unregistered_leaf_found = event(Tracker.unregistered_leaf_found)
        # Ops
        self.op_inspected = event(Tracker.op_inspected)
        self.graph_op = event(Tracker.graph_op)
        self.nongraph_op = event(Tracker.nongraph_op)
        self.requires_grad_set = event(Tracker.requires_grad_set)
        self.leaf_begins = event(Tracker.leaf_begins)
        self.op_claimed = event(Tracker.op_claimed)
        self.op_raised = event(Tracker.op_raised)
        self.recomputation_stopped = event(Tracker.recomputation_stopped)
        self.region_begins = event(Tracker.region_begins)
        self.about_to_write = event(Tracker.about_to_write)
        self.wrote = event(Tracker.wrote)
        self.wrote_in_step = event(Tracker.wrote_in_step)
        self.data_read = event(Tracker.data_read)
        self.memory_read = event(Tracker.memory_read)
        self.leaf_grad_read = event(Tracker.leaf_grad_read)
        self.nonleaf_grad_read = event(Tracker.nonleaf_grad_read)
        self.grad_read_or_set = event(Tracker.grad_read_or_set)
        self.grad_cleared = event(Tracker.grad_cleared)
        self.data_assigned = event(Tracker.data_assigned)
        self.parameter_cast = event(Tracker.parameter_cast)
        self.hook_registered = event(Tracker.hook_registered)
        self.region_called = event(Tracker.region_called)
        self.grad_mode_set = event(Tracker.grad_mode_set)
        # Backward calls
        self.backward_begins = event(Tracker.backward_begins)
        self.graph_walked = event(Tracker.graph_walked)
        self.backward_attaching = event(Tracker.backward_attaching)
        self.node_ran = event(Tracker.node_ran)
        self.backward_detaching = event(Tracker.backward_detaching)
        self.backward_returned = event(Tracker.backward_returned)
        self.sentinel_call_begins = event(Tracker.sentinel_call_begins)
        self.root_sampled = event(Tracker.root_sampled)
        self.sentinel_call_ended = event(Tracker.sentinel_call_ended)
        self.fast_path_calls = event(Tracker.fast_path_calls)
        self.call_failed = event(Tracker.call_failed)
        self.outermost_call_ended = event(Tracker.outermost_call_ended)
        self.failure_found = event(Tracker.failure_found)
        self.novelty_found = event(Tracker.novelty_found)
        self.nonfinite_loss_fetched = event(Tracker.nonfinite_loss_fetched)
        self.backward_recorded = event(Tracker.backward_recorded)
        self.backward_repeated = event(Tracker.backward_repeated)

    def _event(self, method: Callable[Concatenate[Any, P], object]) -> Event[P]:
        """Return a new event with the name and the parameters of `method` of ``Tracker``."""
        event: Event[P] = Event(method.__name__, self)
        self.by_name[event.name] = event
        return event

    def attach(self, listener: object) -> Callable[[], None]:
        """Register the event methods of `listener`. Returns a function that removes them.

        :raises TypeError: a method takes another number of arguments than its event has.
        """
        added: list[tuple[Event[Any], Callable[..., object]]] = []
        for name, event in self.by_name.items():
            method = getattr(type(listener), name, None)
            if method is not None and method is not getattr(Tracker, name):
                _check_signature(listener, name)
                added.append((event, getattr(listener, name)))
        for event, bound in added:
            event.add(bound)

        def undo() -> None:
            """Remove the methods that were registered."""
            for event, bound in reversed(added):
                event.remove(bound)

        return undo

    def fault(self, part: object, error: BaseException) -> None:
        """Count an error of a shared part. The session ends if such errors keep occurring."""
        self.faults.add(type(part).__name__, error)
        self._shared_faults += 1
        if self._shared_faults >= MAX_SHARED_FAULTS:
            self._give_up(error)

    def contained(self, part: object, hook: Callable[..., None], *first: object) -> Callable[..., None]:
        """Return a hook that calls `hook`, with `first` before its own arguments; no error reaches the engine."""

        def contained_hook(*arguments: object) -> None:
            """Call `hook` with the first arguments and these; an error is counted as one of `part`."""
            try:
                hook(*first, *arguments)
            except Exception as error:
                self.fault(part, error)

        return contained_hook

    def reset_shared_faults(self) -> None:
        """Reset the count of consecutive shared errors: a backward call was recorded."""
        self._shared_faults = 0

    def listener_failed(self, listener: object, error: BaseException) -> None:
        """Count the error of a listener, and remove all listeners of its owner after too many errors in a row."""
        owner = getattr(listener, "__self__", listener)
        self.faults.add(type(owner).__name__, error)
        errors = listener.errors if isinstance(listener, _FailingListener) else [0]
        errors[0] += 1
        if errors[0] >= MAX_LISTENER_FAULTS:
            self.faults.ended.add(type(owner).__name__)
            if getattr(owner, "vital", False):
                self._give_up(error)
        for event in self.by_name.values():
            if errors[0] >= MAX_LISTENER_FAULTS:
                event.listeners = tuple(one for one in event.listeners if getattr(one, "__self__", one) is not owner)
            elif errors[0] == 1:
                event.listeners = tuple(
                    _FailingListener(getattr(one, "listener", one), owner, errors)
                    if getattr(one, "__self__", one) is owner
                    else one
                    for one in event.listeners
                )


def _check_signature(listener: object, name: str) -> None:
    """Check that the method `name` of `listener` takes the arguments of its event.

    :raises TypeError: it does not.
    """
    method, expected = unwrap(getattr(type(listener), name)), getattr(Tracker, name)
    code = getattr(method, "__code__", None)
    if code is None or code.co_flags & CO_VARARGS:
        return
    most, optional = code.co_argcount, len(method.__defaults__ or ())
    wanted = expected.__code__.co_argcount
    if not most - optional <= wanted <= most:
        parameters = expected.__code__.co_varnames[1:wanted]
        raise TypeError(
            f"{type(listener).__name__}.{name} takes {most - 1} arguments, but the event has {wanted - 1}: "
            f"({', '.join(parameters)}); see Tracker.{name}"
        )
