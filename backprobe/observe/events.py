"""What happens while a session watches, and who hears of it.

Note [Events]: whoever looks for one thing is a ``Tracker`` that defines the methods of the events it wants to hear;
``Events.attach`` looks which those are, and gives back what undoes it. For each event there is a tuple of what is
called, read anew each time it happens: an empty one costs a look, and a listener that goes away while it is being told
disturbs nobody. What a listener raises is a fault of its own: it is counted, the others are told all the same, and
after ``MOST`` of them in a row it hears nothing any more. A script never sees one.
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
#: Faults in a row after which a listener is told nothing any more.
MOST = 20
#: Faults of what all others stand on, with no backward call recorded in between, after which watching ends.
ALL = 10 * MOST


class Tracker:
    """Looks for one thing. The methods here say what there is to hear; none of them is called unless a subclass has
    its own. ``records`` and ``unseen`` are asked when a run is read.
    """

    def __init__(self, scene: TrackerContext) -> None:
        """A session makes one of each tracker that is wanted."""

    @classmethod
    def wanted(cls, settings: Settings) -> bool:
        """Whether a session with these settings has one."""
        return True

    # A session

    def attached(self) -> None:
        """Watching begins, or goes on."""

    def detached(self) -> None:
        """Watching stops for a while, or for good; also in a forked child. Take off what is yours."""

    def ended(self) -> None:
        """The session is over: time to look at what was sampled."""

    # Steps

    def step_begins(self, step: int, careful: bool) -> None:
        """Step number `step` begins; `careful`: it is looked at closely."""

    def step_over(self, step: Step) -> None:
        """A step is over."""

    def brief_step(self, step: Step) -> None:
        """A step is over that passed, one of those before the running one (Note [Brief steps])."""

    def look_begins(self, step: int) -> None:
        """Statistics of `step` are measured: its optimizer is about to step."""

    def look_over(self, step: int) -> None:
        """What was measured in `step` has been handed on, and looked at."""

    def alarm(self, alarm: Any) -> None:
        """What was handed on shows an ``Alarm`` (``findings``)."""

    def optimizer_begins(self, optimizer: Any) -> None:
        """An optimizer is about to step."""

    def optimizer_alone(self, optimizer: Any) -> None:
        """One of torch's own optimizers is about to step, and calls nothing of the script's in it."""

    def optimizer_over(self, optimizer: Any) -> None:
        """An optimizer has stepped."""

    # Modules

    def forward_begins(self) -> None:
        """An outermost module is about to run."""

    def root_found(self) -> None:
        """There is a new outermost module."""

    def region_entered(self) -> None:
        """A module is called inside the first region of a checkpoint."""

    def mode_query_begins(self) -> None:
        """A module call begins that builds no graph and may query function modes (Note [Modules that query modes])."""

    def mode_query_ends(self) -> None:
        """That call returned or raised."""

    def trace_begins(self) -> None:
        """PyTorch traces the call of a module that begins."""

    def trace_ends(self) -> None:
        """That call returned or raised."""

    def stateful_enters(self, module: nn.Module) -> None:
        """A module with buffers is called, also in a recomputation."""

    def stateful_left(self, module: nn.Module, where: ModuleCallRef) -> None:
        """A module with buffers returned in a recomputation."""

    def module_left(self, module: nn.Module, where: ModuleCallRef, output: Any) -> None:
        """A module returned `output` in the forward."""

    def first_output(self, output: Any) -> None:
        """The first module to return in the call of an outermost one gave `output`, with gradient mode on."""

    def hooked_left(self, module: nn.Module, where: ModuleCallRef, output: Any, nodes: int) -> None:
        """A module with backward hooks returned `output`, having made `nodes` nodes."""

    def stray_module(self, module: nn.Module, parent: ModuleCallRef, spot: CodeLocation | None) -> None:
        """A module was called inside `parent`, and no outermost module holds it."""

    def stray_leaf(self, tensor: Any) -> None:
        """A leaf that gets a gradient belongs to no outermost module."""

    # Ops

    def op(self, op: Op) -> None:
        """An op ran, in a step that is looked at closely."""

    def op_made(self, out: Any, before: int, after: int, entry: Entry) -> None:
        """An op made the nodes `before` to `after` - 1, in a step that is not looked at closely; views are left out."""

    def op_outside(self, func: Any, args: Any, out: Any, frame: Any) -> None:
        """An op that `frame` called with `args` made no node, in a step that is not looked at closely."""

    def requires_grad_set(self, tensor: Any, on: bool, frame: Any) -> None:
        """``requires_grad`` of a leaf is about to be set at `frame`."""

    def op_claimed(self, op: Op) -> bool:
        """An op ran. ``True``: it is of a recomputation whose nodes no backward will run, and nobody else's."""
        return False

    def op_raised(self, text: str, frame: Any, args: Any) -> None:
        """An op that `frame` called with `args` raised a ``RuntimeError`` that says `text`."""

    def recomputation_stopped(self, func: Any, args: Any, kwargs: Any, frame: Any) -> None:
        """The op that a recomputation ends with was called: it gives nothing."""

    def region_begins(self, spot: CodeLocation | None, frame: Any, where: ModuleCallRef | None) -> None:
        """A checkpointed region, called at `spot`, runs for the first time; `frame` is inside it."""

    def about_to_write(self) -> None:
        """An op that writes in place is about to run."""

    def wrote(self, func: Any, written: list[Any], seq: int, frame: Any) -> None:
        """An op that `frame` called wrote to the tensors `written`."""

    def wrote_in_step(self, func: Any, written: list[Any], seq: int, frame: Any) -> None:
        """The same inside the step of an optimizer that is not torch's own."""

    def data_read(self, tensor: Any, out: Any, frame: Any) -> None:
        """``tensor.data`` gave `out`."""

    def memory_read(self, func: Any, tensor: Any, out: Any, frame: Any) -> None:
        """``tensor.numpy()`` or the like gave out a tensor's memory."""

    def leaf_grad_read(self, tensor: Any, value: Any, frame: Any) -> None:
        """``.grad`` of a leaf was read while a backward call is going on."""

    def nonleaf_grad_read(self, tensor: Any, frame: Any) -> None:
        """``.grad`` of a tensor that is not a leaf was read, and is ``None``."""

    def grad_used(self, value: Any, put: bool, frame: Any) -> None:
        """``.grad`` of a leaf, which is `value`, was read or put there, outside backward calls and optimizers."""

    def data_put(self, tensor: Any, frame: Any) -> None:
        """``tensor.data = ...`` is about to put other values in a leaf."""

    def hook_put(self, tensor: Any, hook: Any, frame: Any) -> None:
        """`frame` puts a hook on a tensor that has a node."""

    def region_called(self, call: Any) -> None:
        """A compiled region was called whose results have a graph: a ``RegionCall`` of ``torch_internals``."""

    def grad_mode_set(self, on: bool, frame: Any) -> None:
        """Gradient mode is about to be set at `frame`."""

    # Backward calls

    def backward_begins(self) -> None:
        """A backward call begins."""

    def graph_known(self, running: ActiveBackward, frame: Any) -> None:
        """The graph of a call that `frame` made is known."""

    def backward_starts(self, running: ActiveBackward) -> None:
        """The hooks of a call are about to be put on its nodes."""

    def node_ran(self, running: ActiveBackward, node: int, grad_inputs: Any, grad_outputs: Any) -> None:
        """A node that computes has run. Told in the engine's thread."""

    def backward_ended(self, running: ActiveBackward) -> None:
        """A call is over, or did not begin after all: take off what is yours."""

    def backward_ran(self, running: ActiveBackward) -> None:
        """A call is over, and is about to become a record."""

    def call_counted(self, spot: CodeLocation | None, roots: Sequence[Any]) -> None:
        """An outermost backward call from `roots` that adds gradients is about to be made at `spot`, and is not
        recorded."""

    def root_passes(self, root: Any) -> None:
        """One of many backward calls of steps that pass is about to be made from `root`."""

    def call_over(self, spot: CodeLocation | None) -> None:
        """One that was only counted is over, and gave gradients."""

    def calls_passed(self, spot: CodeLocation | None, count: int) -> None:
        """So many outermost backward calls were made at `spot` that add gradients, in steps that pass; ``None``: it is
        not known where."""

    def call_spoilt(self, what: str) -> None:
        """An outermost backward call that is not recorded went wrong, or is about to: `what`."""

    def backward_over(self, running: ActiveBackward, recorded: PendingCallRecord) -> None:
        """A call is over, and this is its record."""

    def backward_repeated(self, running: ActiveBackward, recorded: PendingCallRecord) -> None:
        """The same, where nothing went wrong and nothing was noted of its forward: it was told with ``call_counted``,
        and with none of the other events of backward calls."""

    # What is known

    def records(self) -> Iterable[Any]:
        """What was found, so far: records of ``backprobe.records``, or of a plugin's own."""
        return ()

    def unseen(self) -> Iterable[Unseen]:
        """What could not be observed, counted."""
        return ()


_ASKED = ("wanted", "records", "unseen")
#: Every event, by name.
EVENTS = tuple(name for name in vars(Tracker) if not name.startswith("_") and name not in _ASKED)


class Faults:
    """What failed in our own code, by part."""

    def __init__(self) -> None:
        #: The first of all.
        self.first: BaseException | None = None
        self._counts: dict[str, tuple[int, str]] = {}
        #: Parts that are told nothing any more.
        self.ended: set[str] = set()

    def add(self, part: str, error: BaseException) -> int:
        """Count one; how many that part has had.

        Note [Handlers of signals]: Python runs them wherever it is, so also in the midst of our work. What one raises,
        a time limit or the like, is the script's, and goes on its way to it.

        :raises Exception: `error`, where it is that.
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
    """A listener that has failed: counts how often in a row, for all that its owner hears."""

    def __init__(self, hear: Callable[..., Any], owner: Any, row: list[int]) -> None:
        self.hear, self.__self__, self.row = hear, owner, row

    def __call__(self, *given: Any) -> Any:
        answer = self.hear(*given)
        self.row[0] = 0
        return answer


class Events:
    """One tuple of listeners for each event; see Note [Events]."""

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Heard: ...

    def __init__(self) -> None:
        self.faults = Faults()
        self._row = 0
        #: What our work takes.
        self.own = OwnTime()
        #: What ends the watching, where what it stands on fails again and again.
        self.give_up: Callable[[BaseException], None] | None = None
        for name in EVENTS:
            setattr(self, name, ())

    def attach(self, listener: Any) -> Callable[[], None]:
        """Tell `listener` of the events that it has methods for, from now on. What is returned undoes it."""
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
        """Tell `hear` of one event, after those that are told already."""
        setattr(self, name, (*getattr(self, name), hear))

    def drop(self, name: str, hear: Callable[..., Any]) -> None:
        """Tell `hear` no longer; nothing where it was not told."""
        setattr(self, name, tuple(one for one in getattr(self, name) if getattr(one, "hear", one) != hear))

    def tell(self, name: str, *given: Any) -> None:
        """Something happened. The hot paths have this loop in place."""
        for hear in getattr(self, name):
            try:
                hear(*given)
            except Exception as error:
                self.failed(hear, error)

    def fault(self, part: object, error: BaseException) -> None:
        """Something that all others stand on failed: count it. Watching ends where it fails all the time."""
        self.faults.add(type(part).__name__, error)
        self._row += 1
        if self._row >= ALL and self.give_up is not None:
            self.give_up(error)

    def well(self) -> None:
        """A backward call was recorded: what failed before does not fail all the time."""
        self._row = 0

    def failed(self, hear: Any, error: BaseException) -> None:
        """A listener raised: count it, and tell it nothing more where that happens all the time."""
        owner = getattr(hear, "__self__", hear)
        self.faults.add(type(owner).__name__, error)
        row = hear.row if isinstance(hear, _Failed) else [0]
        row[0] += 1
        if row[0] >= MOST:
            self.faults.ended.add(type(owner).__name__)
            if getattr(owner, "vital", False) and self.give_up is not None:
                self.give_up(error)
        for name in EVENTS:
            told = getattr(self, name)
            if row[0] >= MOST:
                left = (one for one in told if getattr(one, "__self__", one) is not owner)
            elif row[0] == 1:
                left = (
                    _Failed(getattr(one, "hear", one), owner, row) if getattr(one, "__self__", one) is owner else one
                    for one in told
                )
            else:
                continue
            setattr(self, name, tuple(left))
