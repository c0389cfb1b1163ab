"""The base class of trackers: one method for each event."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from types import FrameType
from typing import TYPE_CHECKING

from ..records import Unseen

if TYPE_CHECKING:
    import torch
    from torch import nn

    from ..records import Step
    from ..source.frames import CodeLocation
    from ..source.roots import ModuleCallRef
    from .backward.active_backward import ActiveBackward
    from .backward.pending_call_record import PendingCallRecord
    from .forward.oplog import Entry
    from .forward.torch_call_recorder import Op
    from .schedule.samples import AcceleratorClipNorm, AcceleratorNorms
    from .schedule.settings import Settings
    from .tracker_context import TrackerContext


class Tracker:
    """Base class of trackers: one method per event. A method is called only if a subclass overrides it. ``records`` and
    ``unseen`` are called when a run is read.
    """

    def __init__(self, context: TrackerContext) -> None:
        """A session makes one instance of each tracker class that is wanted."""

    @classmethod
    def wanted(cls, settings: Settings) -> bool:
        """Return whether a session with these settings uses this tracker."""
        return True

    # A session

    def observing_begins(self) -> None:
        """Observing begins or resumes."""

    def observing_pauses(self) -> None:
        """Observing pauses or ends; also called in a forked child. Remove everything that you attached."""

    def ended(self) -> None:
        """The session is over. Evaluate what was sampled."""

    # Steps

    def step_begins(self, step: int, inspecting: bool) -> None:
        """Step number `step` begins. `inspecting`: the step is inspected closely."""

    def step_finished(
        self, step: Step, losses: list[torch.Tensor], norms: list[AcceleratorNorms | AcceleratorClipNorm]
    ) -> None:
        """A step that did not take the fast path is over, and not accounted for yet: listen to ``step_ended`` instead.

        :param losses: the parts of its loss, and `norms`: the norms, that are still on an accelerator.
        """

    def step_ended(self, step: Step) -> None:
        """A step is over, and accounted for."""

    def fast_path_ended(self, steps: int, seconds: float, between: bool) -> None:
        """A stretch of fast-path steps is over, which took `seconds`.

        :param between: no step is running.
        """

    def fast_path_optimizer_stepped(self, optimizer: torch.optim.Optimizer, seq: int) -> None:
        """An optimizer stepped in a fast-path step that is over, when the node counter was at `seq`."""

    def measurement_begins(self, step: int) -> None:
        """The statistics of `step` are about to be measured: its optimizer is about to step."""

    def measurement_ended(self, step: int) -> None:
        """The statistics of `step` were passed on and checked."""

    def alarm(self, alarm: object) -> None:
        """The statistics show an ``Alarm`` (``findings``)."""

    def optimizer_begins(self, optimizer: torch.optim.Optimizer) -> None:
        """An optimizer is about to step."""

    def closure_step_begins(self, optimizer: torch.optim.Optimizer, closure: object) -> None:
        """An optimizer is about to step, and was given a closure."""

    def builtin_optimizer_begins(self, optimizer: torch.optim.Optimizer) -> None:
        """A built-in torch optimizer is about to step, and calls no code of the script in it."""

    def optimizer_ended(self, optimizer: torch.optim.Optimizer) -> None:
        """An optimizer has stepped."""

    # Modules

    def forward_begins(self) -> None:
        """An outermost module is about to run."""

    def root_found(self) -> None:
        """A new outermost module was found."""

    def region_entered(self) -> None:
        """A module is called inside the first run of a checkpointed region."""

    def mode_query_begins(self, module: nn.Module) -> None:
        """A call of `module` begins that builds no graph.

        The module may query function modes (Note [Modules that query modes]).
        """

    def mode_query_ends(self) -> None:
        """The module call of ``mode_query_begins`` returned or raised."""

    def jit_trace_begins(self) -> None:
        """A module call begins that PyTorch traces."""

    def jit_trace_ends(self) -> None:
        """The module call of ``jit_trace_begins`` returned or raised."""

    def stateful_module_called(self, module: nn.Module) -> None:
        """A module with buffers is called; also in a recomputation."""

    def stateful_module_returned(self, module: nn.Module, where: ModuleCallRef) -> None:
        """A module with buffers returned in a recomputation."""

    def module_returned(self, module: nn.Module, where: ModuleCallRef, output: object) -> None:
        """A module returned `output` in the forward."""

    def first_module_returned(self, output: object) -> None:
        """The first module to return inside an outermost module call gave `output`, with gradient mode on."""

    def hooked_module_returned(self, module: nn.Module, where: ModuleCallRef, output: object, nodes: int) -> None:
        """A module with backward hooks returned `output` and made `nodes` nodes."""

    def unregistered_module_called(self, module: nn.Module, parent: ModuleCallRef, spot: CodeLocation | None) -> None:
        """A module that no outermost module contains was called inside `parent`."""

    def unregistered_leaf_found(self, tensor: torch.Tensor) -> None:
        """A leaf that gets a gradient belongs to no outermost module."""

    # Ops

    def op_inspected(self, op: Op) -> None:
        """An op ran in a closely inspected step."""

    def graph_op(self, out: object, before: int, after: int, entry: Entry) -> None:
        """An op made the nodes `before` to `after` - 1 in a step that is not inspected closely. Views are excluded."""

    def nongraph_op(self, func: object, args: object, out: object, frame: FrameType) -> None:
        """An op that `frame` called with `args` made no node in a step that is not inspected closely."""

    def requires_grad_set(self, tensor: torch.Tensor, on: bool, frame: FrameType) -> None:
        """``requires_grad`` of a leaf is about to be set at `frame`."""

    def leaf_begins(self, tensor: torch.Tensor, frame: FrameType) -> None:
        """``requires_grad`` of a tensor that is no parameter is about to be turned on at `frame`."""

    def op_claimed(self, op: Op) -> bool:
        """An op ran. Return ``True`` to claim it: it belongs to a recomputation whose nodes no backward will run."""
        return False

    def op_raised(self, text: str, frame: FrameType, args: object) -> None:
        """An op that `frame` called with `args` raised a ``RuntimeError`` with the message `text`."""

    def recomputation_stopped(self, func: object, args: object, kwargs: object, frame: FrameType) -> None:
        """The op that ends a recomputation was called; it returns nothing."""

    def region_begins(self, spot: CodeLocation | None, frame: FrameType, where: ModuleCallRef | None) -> None:
        """A checkpointed region, called at `spot`, runs for the first time. `frame` is inside it."""

    def about_to_write(self) -> None:
        """An in-place op is about to run, or observing stops: measure what is pending."""

    def wrote(self, func: object, written: list[torch.Tensor], seq: int, frame: FrameType) -> None:
        """An op that `frame` called wrote to the tensors `written`."""

    def wrote_in_step(self, func: object, written: list[torch.Tensor], seq: int, frame: FrameType) -> None:
        """The same as ``wrote``, inside the step of an optimizer that is not torch's own."""

    def data_read(self, tensor: torch.Tensor, out: object, frame: FrameType) -> None:
        """``tensor.data`` returned `out`."""

    def memory_read(self, func: object, tensor: torch.Tensor, out: object, frame: FrameType) -> None:
        """``tensor.numpy()`` or a similar function exposed a tensor's memory."""

    def leaf_grad_read(self, tensor: torch.Tensor, value: object, frame: FrameType) -> None:
        """``.grad`` of a leaf was read during a backward call."""

    def nonleaf_grad_read(self, tensor: torch.Tensor, frame: FrameType) -> None:
        """``.grad`` of a non-leaf tensor was read, and is ``None``."""

    def grad_read_or_set(self, value: object, put: bool, frame: FrameType) -> None:
        """``.grad`` of a leaf, which is `value`, was read or set outside backward calls and optimizers.

        :param put: it was set.
        """

    def grad_cleared(self, tensor: torch.Tensor, frame: FrameType) -> None:
        """``.grad`` of `tensor`, a leaf, was set to ``None`` outside backward calls and optimizers."""

    def data_assigned(self, tensor: torch.Tensor, frame: FrameType) -> None:
        """``tensor.data = ...`` assigns other values to a leaf."""

    def parameter_cast(self, tensor: torch.Tensor, frame: FrameType) -> None:
        """``tensor.data = ...`` gave a parameter another dtype, as a cast of its module does."""

    def hook_registered(self, tensor: torch.Tensor, hook: object, frame: FrameType) -> None:
        """`frame` registers a hook on a tensor that has a node."""

    def region_called(self, call: object) -> None:
        """A compiled region returned results with a graph. `call` is a ``RegionCall`` of ``torch_internals``."""

    def grad_mode_set(self, on: bool, frame: FrameType) -> None:
        """Gradient mode is about to be set at `frame`."""

    # Backward calls

    def backward_begins(self) -> None:
        """A backward call begins."""

    def graph_walked(self, running: ActiveBackward, frame: FrameType) -> None:
        """The graph of a call that `frame` made has been walked."""

    def backward_attaching(self, running: ActiveBackward) -> None:
        """Hooks are about to be registered on the nodes of a call."""

    def node_ran(self, running: ActiveBackward, node: int, grad_inputs: object, grad_outputs: object) -> None:
        """A hooked node has run. Called in the engine's thread."""

    def backward_detaching(self, running: ActiveBackward) -> None:
        """A call is over, or did not begin after all. Remove everything that you attached."""

    def backward_returned(self, running: ActiveBackward) -> None:
        """A call is over and is about to be turned into a record."""

    def sentinel_call_begins(self, spot: CodeLocation | None, roots: Sequence[object]) -> None:
        """An outermost backward call from `roots` that accumulates gradients, and is not recorded, is about to be made
        at `spot`.
        """

    def root_sampled(self, root: object) -> None:
        """A sample: a backward call of a fast-path step is about to be made from `root`."""

    def sentinel_call_ended(self, spot: CodeLocation | None) -> None:
        """A call that was only counted is over, and accumulated gradients."""

    def fast_path_calls(self, spot: CodeLocation | None, count: int) -> None:
        """In fast-path steps, `count` outermost backward calls that accumulate gradients were made at `spot`; ``None``:
        the place is not known.
        """

    def call_failed(self, what: str) -> None:
        """An outermost backward call that is not recorded went wrong, or is about to: `what`."""

    def outermost_call_ended(self) -> None:
        """An outermost backward call of a step that is not recorded is over."""

    def failure_found(self, step: int) -> None:
        """Something went wrong in `step`, which is not recorded."""

    def novelty_found(self, step: int) -> None:
        """The graph of a call in `step`, which is not recorded, has another size than the graphs before."""

    def nonfinite_loss_fetched(self) -> None:
        """The loss of an earlier step, on an accelerator until now, is not finite."""

    def backward_recorded(self, running: ActiveBackward, recorded: PendingCallRecord) -> None:
        """A call is over, and `recorded` is its record."""

    def backward_repeated(self, running: ActiveBackward, recorded: PendingCallRecord) -> None:
        """The same as ``backward_recorded`` for a call without errors whose forward was not recorded.

        ``sentinel_call_begins`` was emitted for it, and no other backward event.
        """

    # What is known

    def records(self) -> Iterable[object]:
        """Return the findings so far: records of ``backprobe.records``, or of a plugin's own."""
        return ()

    def unseen(self) -> Iterable[Unseen]:
        """Return counts of what could not be observed."""
        return ()
