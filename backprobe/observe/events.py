"""Event definitions and dispatch.

Note [Events]: a ``Tracker`` defines a method for each event that it listens to. ``Events.attach`` finds these methods,
registers them as listeners, and returns a function that removes them. Each event has a tuple of listeners that is read
anew each time the event is emitted: an event without listeners costs one attribute read, and a listener may be removed
while the event is being emitted. An exception in a listener is an internal error: it is counted, the other listeners
are called all the same, and after ``MAX_LISTENER_FAULTS`` errors in a row the listener is removed. The script never
sees such an exception.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from ..records import Unseen
from ..source.tracebacks import of_handler
from .own_time import OwnTime

if TYPE_CHECKING:
    from torch import nn

    from ..records import Step
    from ..source.frames import CodeLocation
    from ..source.roots import ModuleCallRef
    from .backward.calls import ActiveBackward
    from .backward.pending_call_record import PendingCallRecord
    from .forward.oplog import Entry
    from .forward.torch_call_recorder import Op
    from .schedule.settings import Settings
    from .tracker_context import TrackerContext

Heard = tuple[Callable[..., Any], ...]
#: Errors in a row after which a listener is removed.
MAX_LISTENER_FAULTS = 20
#: Errors in shared parts, without a recorded backward call in between, after which the session ends.
MAX_SHARED_FAULTS = 10 * MAX_LISTENER_FAULTS


class Tracker:
    """Base class of trackers: one method per event. A method is called only if a subclass overrides it. ``records`` and
    ``unseen`` are called when a run is read.
    """

    def __init__(self, scene: TrackerContext) -> None:
        """A session makes one instance of each tracker class that is wanted."""

    @classmethod
    def wanted(cls, settings: Settings) -> bool:
        """Whether a session with these settings uses this tracker."""
        return True

    # A session

    def attached(self) -> None:
        """Observing begins or resumes."""

    def detached(self) -> None:
        """Observing pauses or ends; also called in a forked child. Remove everything that you attached."""

    def ended(self) -> None:
        """The session is over. Evaluate what was sampled."""

    # Steps

    def step_begins(self, step: int, careful: bool) -> None:
        """Step number `step` begins. `careful`: the step is inspected closely."""

    def step_over(self, step: Step) -> None:
        """A step is over."""

    def look_begins(self, step: int) -> None:
        """The statistics of `step` are about to be measured: its optimizer is about to step."""

    def look_over(self, step: int) -> None:
        """The statistics of `step` were passed on and checked."""

    def alarm(self, alarm: Any) -> None:
        """The statistics show an ``Alarm`` (``findings``)."""

    def optimizer_begins(self, optimizer: Any) -> None:
        """An optimizer is about to step."""

    def optimizer_alone(self, optimizer: Any) -> None:
        """A built-in torch optimizer is about to step, and calls no code of the script in it."""

    def optimizer_over(self, optimizer: Any) -> None:
        """An optimizer has stepped."""

    # Modules

    def forward_begins(self) -> None:
        """An outermost module is about to run."""

    def root_found(self) -> None:
        """A new outermost module was found."""

    def region_entered(self) -> None:
        """A module is called inside the first run of a checkpointed region."""

    def mode_query_begins(self) -> None:
        """A module call begins that builds no graph and may query function modes (Note [Modules that query modes])."""

    def mode_query_ends(self) -> None:
        """The module call of ``mode_query_begins`` returned or raised."""

    def trace_begins(self) -> None:
        """A module call begins that PyTorch traces."""

    def trace_ends(self) -> None:
        """The module call of ``trace_begins`` returned or raised."""

    def stateful_enters(self, module: nn.Module) -> None:
        """A module with buffers is called; also in a recomputation."""

    def stateful_left(self, module: nn.Module, where: ModuleCallRef) -> None:
        """A module with buffers returned in a recomputation."""

    def module_left(self, module: nn.Module, where: ModuleCallRef, output: Any) -> None:
        """A module returned `output` in the forward."""

    def first_output(self, output: Any) -> None:
        """The first module to return inside an outermost module call gave `output`, with gradient mode on."""

    def hooked_left(self, module: nn.Module, where: ModuleCallRef, output: Any, nodes: int) -> None:
        """A module with backward hooks returned `output` and made `nodes` nodes."""

    def stray_module(self, module: nn.Module, parent: ModuleCallRef, spot: CodeLocation | None) -> None:
        """A module that no outermost module contains was called inside `parent`."""

    def stray_leaf(self, tensor: Any) -> None:
        """A leaf that gets a gradient belongs to no outermost module."""

    # Ops

    def op(self, op: Op) -> None:
        """An op ran in a closely inspected step."""

    def op_made(self, out: Any, before: int, after: int, entry: Entry) -> None:
        """An op made the nodes `before` to `after` - 1 in a step that is not inspected closely. Views are excluded."""

    def op_outside(self, func: Any, args: Any, out: Any, frame: Any) -> None:
        """An op that `frame` called with `args` made no node in a step that is not inspected closely."""

    def requires_grad_set(self, tensor: Any, on: bool, frame: Any) -> None:
        """``requires_grad`` of a leaf is about to be set at `frame`."""

    def op_claimed(self, op: Op) -> bool:
        """An op ran. Return ``True`` to claim it: it belongs to a recomputation whose nodes no backward will run."""
        return False

    def op_raised(self, text: str, frame: Any, args: Any) -> None:
        """An op that `frame` called with `args` raised a ``RuntimeError`` with the message `text`."""

    def recomputation_stopped(self, func: Any, args: Any, kwargs: Any, frame: Any) -> None:
        """The op that ends a recomputation was called; it returns nothing."""

    def region_begins(self, spot: CodeLocation | None, frame: Any, where: ModuleCallRef | None) -> None:
        """A checkpointed region, called at `spot`, runs for the first time. `frame` is inside it."""

    def about_to_write(self) -> None:
        """An in-place op is about to run, or observing stops: measure what is pending."""

    def wrote(self, func: Any, written: list[Any], seq: int, frame: Any) -> None:
        """An op that `frame` called wrote to the tensors `written`."""

    def wrote_in_step(self, func: Any, written: list[Any], seq: int, frame: Any) -> None:
        """The same as ``wrote``, inside the step of an optimizer that is not torch's own."""

    def data_read(self, tensor: Any, out: Any, frame: Any) -> None:
        """``tensor.data`` returned `out`."""

    def memory_read(self, func: Any, tensor: Any, out: Any, frame: Any) -> None:
        """``tensor.numpy()`` or a similar function exposed a tensor's memory."""

    def leaf_grad_read(self, tensor: Any, value: Any, frame: Any) -> None:
        """``.grad`` of a leaf was read during a backward call."""

    def nonleaf_grad_read(self, tensor: Any, frame: Any) -> None:
        """``.grad`` of a non-leaf tensor was read, and is ``None``."""

    def grad_used(self, value: Any, put: bool, frame: Any) -> None:
        """``.grad`` of a leaf, which is `value`, was read or set outside backward calls and optimizers.

        :param put: it was set.
        """

    def data_put(self, tensor: Any, frame: Any) -> None:
        """``tensor.data = ...`` assigns other values to a leaf."""

    def hook_put(self, tensor: Any, hook: Any, frame: Any) -> None:
        """`frame` registers a hook on a tensor that has a node."""

    def region_called(self, call: Any) -> None:
        """A compiled region returned results with a graph. `call` is a ``RegionCall`` of ``torch_internals``."""

    def grad_mode_set(self, on: bool, frame: Any) -> None:
        """Gradient mode is about to be set at `frame`."""

    # Backward calls

    def backward_begins(self) -> None:
        """A backward call begins."""

    def graph_known(self, running: ActiveBackward, frame: Any) -> None:
        """The graph of a call that `frame` made has been walked."""

    def backward_starts(self, running: ActiveBackward) -> None:
        """Hooks are about to be registered on the nodes of a call."""

    def node_ran(self, running: ActiveBackward, node: int, grad_inputs: Any, grad_outputs: Any) -> None:
        """A hooked node has run. Called in the engine's thread."""

    def backward_ended(self, running: ActiveBackward) -> None:
        """A call is over, or did not begin after all. Remove everything that you attached."""

    def backward_ran(self, running: ActiveBackward) -> None:
        """A call is over and is about to be turned into a record."""

    def call_counted(self, spot: CodeLocation | None, roots: Sequence[Any]) -> None:
        """An outermost backward call from `roots` that accumulates gradients, and is not recorded, is about to be made
        at `spot`.
        """

    def root_passes(self, root: Any) -> None:
        """A sample: a backward call of a fast-path step is about to be made from `root`."""

    def call_over(self, spot: CodeLocation | None) -> None:
        """A call that was only counted is over, and accumulated gradients."""

    def calls_passed(self, spot: CodeLocation | None, count: int) -> None:
        """In fast-path steps, `count` outermost backward calls that accumulate gradients were made at `spot`; ``None``:
        the place is not known.
        """

    def call_spoilt(self, what: str) -> None:
        """An outermost backward call that is not recorded went wrong, or is about to: `what`."""

    def backward_over(self, running: ActiveBackward, recorded: PendingCallRecord) -> None:
        """A call is over, and `recorded` is its record."""

    def backward_repeated(self, running: ActiveBackward, recorded: PendingCallRecord) -> None:
        """The same as ``backward_over`` for a call without errors whose forward was not recorded. ``call_counted`` was
        emitted for it, and no other backward event.
        """

    # What is known

    def records(self) -> Iterable[Any]:
        """The findings so far: records of ``backprobe.records``, or of a plugin's own."""
        return ()

    def unseen(self) -> Iterable[Unseen]:
        """Counts of what could not be observed."""
        return ()


_ASKED = ("wanted", "records", "unseen")
#: Every event, by name.
EVENTS = tuple(name for name in vars(Tracker) if not name.startswith("_") and name not in _ASKED)


class Faults:
    """Internal errors, by part."""

    def __init__(self) -> None:
        #: The first internal error.
        self.first: BaseException | None = None
        self._counts: dict[str, tuple[int, str]] = {}
        #: Parts that were removed as listeners.
        self.ended: set[str] = set()

    def add(self, part: str, error: BaseException) -> int:
        """Count an error of `part`. Returns how many errors that part has had.

        Note [Handlers of signals]: Python runs signal handlers at any point, and so also inside our code. An exception
        that a handler raises, such as a time limit, belongs to the script and is raised again.

        :raises Exception: `error`, if a signal handler raised it.
        """
        if of_handler(error):
            raise error
        if self.first is None:
            self.first = error
        count, text = self._counts.get(part, (0, f"{type(error).__name__}: {error}"[:300]))
        self._counts[part] = (count + 1, text)
        return count + 1

    def unseen(self) -> list[Unseen]:
        return [
            Unseen(
                "internal error",
                count,
                f"in {part}, {'which was left out then' if part in self.ended else 'whose work it cost there'}; the "
                f"script went on: {text}",
            )
            for part, (count, text) in self._counts.items()
        ]


class _Failed:
    """A listener that has failed. Counts the consecutive errors of all listeners of its owner."""

    def __init__(self, hear: Callable[..., Any], owner: Any, row: list[int]) -> None:
        self.hear, self.__self__, self.row = hear, owner, row

    def __call__(self, *given: Any) -> Any:
        answer = self.hear(*given)
        self.row[0] = 0
        return answer


class Events:
    """The listeners of each event, as one tuple for each, and the dispatch to them; see Note [Events]."""

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Heard: ...

    def __init__(self) -> None:
        self.faults = Faults()
        self._row = 0
        #: The time that our own work takes.
        self.own = OwnTime()
        #: Ends the session if shared parts fail again and again.
        self.give_up: Callable[[BaseException], None] | None = None
        for name in EVENTS:
            setattr(self, name, ())

    def attach(self, listener: Any) -> Callable[[], None]:
        """Register the event methods of `listener`. Returns a function that removes them."""
        added = []
        for name in EVENTS:
            method = getattr(type(listener), name, None)
            if method is not None and method is not getattr(Tracker, name):
                hear = getattr(listener, name)
                self.listen(name, hear)
                added.append((name, hear))

        def undo() -> None:
            for name, hear in reversed(added):
                self.drop(name, hear)

        return undo

    def listen(self, name: str, hear: Callable[..., Any]) -> None:
        """Call `hear` on one event, after the listeners that it has already."""
        setattr(self, name, (*getattr(self, name), hear))

    def drop(self, name: str, hear: Callable[..., Any]) -> None:
        """Remove the listener `hear` of an event, if it is registered."""
        setattr(self, name, tuple(one for one in getattr(self, name) if getattr(one, "hear", one) != hear))

    def tell(self, name: str, *given: Any) -> None:
        """Emit an event. The hot paths contain a copy of this loop."""
        for hear in getattr(self, name):
            try:
                hear(*given)
            except Exception as error:
                self.failed(hear, error)

    def fault(self, part: object, error: BaseException) -> None:
        """Count an error of a shared part. The session ends if such errors keep occurring."""
        self.faults.add(type(part).__name__, error)
        self._row += 1
        if self._row >= MAX_SHARED_FAULTS and self.give_up is not None:
            self.give_up(error)

    def well(self) -> None:
        """Reset the count of consecutive shared errors: a backward call was recorded."""
        self._row = 0

    def failed(self, hear: Any, error: BaseException) -> None:
        """Count the error of a listener, and remove the listener after too many errors in a row."""
        owner = getattr(hear, "__self__", hear)
        self.faults.add(type(owner).__name__, error)
        row = hear.row if isinstance(hear, _Failed) else [0]
        row[0] += 1
        if row[0] >= MAX_LISTENER_FAULTS:
            self.faults.ended.add(type(owner).__name__)
            if getattr(owner, "vital", False) and self.give_up is not None:
                self.give_up(error)
        for name in EVENTS:
            told = getattr(self, name)
            if row[0] >= MAX_LISTENER_FAULTS:
                left = (one for one in told if getattr(one, "__self__", one) is not owner)
            elif row[0] == 1:
                left = (
                    _Failed(getattr(one, "hear", one), owner, row) if getattr(one, "__self__", one) is owner else one
                    for one in told
                )
            else:
                continue
            setattr(self, name, tuple(left))
