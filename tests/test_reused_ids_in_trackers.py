"""Tensors and modules with the id of a freed one, as each tracker sees them: their events are given by hand."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from reusing import reuse, with_id
from torch import nn

from backprobe.engine.nested import Inner
from backprobe.observe.session import Session, Settings
from backprobe.observe.sinks.disk import DiskSink
from backprobe.observe.sinks.memory import Collector
from backprobe.observe.tracker_context import TrackerContext
from backprobe.observe.trackers.corruption import CorruptionTracker
from backprobe.observe.trackers.recompute import Recompute
from backprobe.observe.trackers.replicas import ReplicaWatch
from backprobe.observe.trackers.stale_grad_reads import StaleGradReadTracker
from backprobe.observe.trackers.stopped_learning import StoppedLearningTracker
from backprobe.records import Recomputed, Replica, ReplicaState
from backprobe.source.roots import ModuleCallRef, RootModule
from backprobe.user_tools.activations.captured import ByMemory
from backprobe.user_tools.activations.mode import CaptureMode
from backprobe.user_tools.activations.recorder import Recorder

__all__ = ["reuse"]
pytestmark = pytest.mark.usefixtures("reuse")


@pytest.fixture
def context() -> TrackerContext:
    return Session(Collector(), Settings()).context


def weight(value: float = 1.0) -> Any:
    return with_id(nn.Parameter(torch.full((3,), value)))


def call(*leaves: Any, trouble: bool = False, live: Any = None) -> tuple[Any, Any]:
    """Return a backward call that reached `leaves`, as the tracker of corruption sees it, and its record."""
    graph = SimpleNamespace(leaves=list(enumerate(leaves)))
    recorded = SimpleNamespace(kind="backward", raised=None, has_trouble=trouble)
    return SimpleNamespace(graph=graph, inside=None, live=live or object()), recorded


def test_a_weight_that_no_backward_call_reached_was_not_finite_before(context: TrackerContext) -> None:
    tracker = CorruptionTracker(context)
    first = weight()
    tracker.backward_recorded(*call(first))
    optimizer = torch.optim.SGD([first], 1e-3)
    tracker.optimizer_ended(optimizer)
    first = optimizer.param_groups[0]["params"][0] = None
    second = optimizer.param_groups[0]["params"][0] = weight(torch.nan)
    tracker.backward_recorded(*call(second, trouble=True))
    assert tracker.records() == ()


def test_a_write_to_a_freed_weight_is_none_to_a_later_one(context: TrackerContext) -> None:
    tracker = CorruptionTracker(context)
    first, other = weight(), nn.Parameter(torch.ones(3))
    tracker.backward_recorded(*call(first, other))
    tracker.data_assigned(first, sys._getframe())
    tracker.wrote(torch.Tensor.mul_, [first], 0, sys._getframe())
    del first
    second = weight(torch.nan)
    tracker.optimizer_ended(torch.optim.SGD([other], 1e-3))
    tracker.backward_recorded(*call(second, trouble=True))
    assert tracker.records() == ()


def test_a_line_that_writes_to_another_tensor_did_not_touch_a_gradient(context: TrackerContext) -> None:
    tracker = CorruptionTracker(context)
    tracker.backward_recorded(*call(nn.Parameter(torch.ones(3))))
    read = torch.full((3,), 1.0)
    tracker.grad_read_or_set(with_id(read), False, sys._getframe())
    touched = len(tracker._gradient_uses)
    del read
    tracker.wrote(torch.Tensor.mul_, [with_id(torch.ones(3))], 0, sys._getframe())
    assert len(tracker._gradient_uses) == touched
    assert not any(tracker._gradient_uses.values())


def test_a_gradient_with_the_id_of_the_replaced_one_is_not_read_too_early(context: TrackerContext) -> None:
    tracker = StaleGradReadTracker(context)
    leaf = nn.Parameter(torch.ones(3))
    first = with_id(torch.zeros(3))
    leaf.grad = first
    context.recorder.inspecting = True
    tracker.backward_attaching(cast("Any", SimpleNamespace(inside=None, graph=SimpleNamespace(leaves=[(0, leaf)]))))
    assert tracker._grads_at_start
    leaf.grad = None
    del first
    second = with_id(torch.ones(3))
    found: list[Any] = []
    tracker._frames = cast("Any", SimpleNamespace(spot=found.append, is_user=lambda code: True, site=lambda spot: None))
    tracker.leaf_grad_read(leaf, second, sys._getframe())
    assert not found


def test_a_module_with_buffers_is_not_in_the_region_of_a_freed_one(context: TrackerContext) -> None:
    tracker = Recompute(context)
    root = nn.Linear(1, 1)
    frame = sys._getframe()
    for name in ("first", "second"):
        module = with_id(nn.BatchNorm1d(2))
        place = ModuleCallRef(RootModule(root, "model"), name, "BatchNorm1d", 1)
        if name == "first":
            _in_region(tracker, module, (frame.f_code, frame.f_lasti))
        context.modules.in_backward = True
        tracker.stateful_module_called(module)
        assert module.num_batches_tracked is not None
        module.num_batches_tracked.add_(1)
        tracker.stateful_module_returned(module, place)
        context.modules.in_backward = False
        del module
    found = {one.modules: one.region is None for one in cast("tuple[Recomputed, ...]", tracker.records())}
    assert found == {("first",): False, ("second",): True}


def _in_region(tracker: Recompute, module: nn.Module, spot: Any) -> None:
    """Call the tracker as from the forward of a checkpointed region that begins at `spot`."""
    outer: Any = tracker._frames
    tracker._frames = cast("Any", SimpleNamespace(spot=lambda frame: spot))
    try:
        torch.utils.checkpoint.checkpoint(lambda: tracker._in_forward(module), use_reentrant=False)
    finally:
        tracker._frames = outer


def test_writes_to_another_tensor_are_none_to_a_replica(context: TrackerContext) -> None:
    tracker = ReplicaWatch(context)
    first = weight()
    tracker._add("fc.weight", first, Replica("fc.weight", (3,), "ddp"), [], [])
    tracker.wrote(torch.Tensor.mul_, [first], 0, sys._getframe())
    del first
    tracker.wrote(torch.Tensor.mul_, [with_id(torch.ones(3))], 0, sys._getframe())
    tracker.data_assigned(with_id(torch.ones(3)), sys._getframe())
    assert len(tracker._writes) == 1


def test_a_later_optimizer_is_listed_anew(context: TrackerContext) -> None:
    tracker = ReplicaWatch(context)
    listed = []
    for _ in range(2):
        parameter = nn.Parameter(torch.ones(3))
        optimizer = with_id(torch.optim.SGD([parameter], 1e-3))
        number, _, tensors = tracker._list_tensors(optimizer)
        tracker.optimizer_ended(optimizer)
        assert tensors[0] is parameter
        listed.append(number)
        del optimizer, parameter, tensors
    assert listed == [0, 1]


def test_dtypes_that_a_freed_parameter_had(context: TrackerContext) -> None:
    tracker = ReplicaWatch(context)
    for dtype in (torch.float32, torch.float16):
        parameter = with_id(nn.Parameter(torch.ones(3, dtype=dtype)))
        tracker.data_assigned(parameter, sys._getframe())
        tracker._add("fc.weight", parameter, Replica("fc.weight", (3,), "ddp"), [], [])
        if dtype is torch.float32:
            del parameter
    tracker._states.append(ReplicaState(0, 0, (), (), (), None))
    [replicas] = tracker.records()
    assert replicas.put == ()


def test_a_tensor_with_the_id_of_one_that_was_frozen(context: TrackerContext) -> None:
    tracker = StoppedLearningTracker(context)
    frame = sys._getframe()
    thawed, frozen = nn.Parameter(torch.ones(3)), weight()
    for one in (thawed, frozen):
        tracker.requires_grad_set(one, False, frame)
    tracker.requires_grad_set(thawed, True, frame)
    del one, frozen
    root: Any = object()
    trained = weight()
    leaves = context.names.leaves
    for tensor in (thawed, trained):
        leaf = leaves.get(tensor)
        leaf.root, leaf.reached = root, 1
    assert not tracker._is_partly_thawed(leaf, tracker._frozen_tensors[id(thawed)])


def test_calls_of_freed_modules_are_not_those_of_later_ones() -> None:
    root = RootModule(nn.Linear(1, 1), "model")
    sink = DiskSink(cast("Any", SimpleNamespace(step=lambda *_: None)))
    sink._step_written = lambda *_: None  # type: ignore[method-assign]
    keys: list[int] = []
    sink._trail_of = lambda same, step, details: keys.append(same)  # type: ignore[method-assign, assignment]
    for name in ("first", "second"):
        trail = [ReusedCall(root, name, "Linear", 1), None]
        modules = SimpleNamespace(trail=trail, details={})
        for _ in range(2):
            sink.step(
                cast("Any", SimpleNamespace(index=5)),
                cast("Any", SimpleNamespace(forward=SimpleNamespace(modules=modules))),
            )
        del trail, modules
    assert keys[0] == keys[1] != keys[2] == keys[3]


class ReusedCall(ModuleCallRef):
    """A module call with the reused id."""

    reused_id = 12_345


def test_a_parameter_with_the_id_of_a_used_one_was_not_used() -> None:
    mode = CaptureMode(ByMemory([]))
    first = weight()
    with mode:
        assert first.sum() == 3
    del first
    model = nn.Sequential(nn.Linear(3, 1, bias=False))
    with_id(model[0].weight)
    recorder = SimpleNamespace(_empty={}, _model=model, _chosen={"0": model[0]}, _calls={}, _mode=mode)
    assert Recorder._find_unseen(cast("Any", recorder)) == {"0": "not called"}


def test_a_leaf_with_the_id_of_one_that_a_node_made() -> None:
    inner = Inner()
    first = with_id(torch.ones(3, requires_grad=True))
    inner._keep(first)
    del first
    second = with_id(torch.ones(3, requires_grad=True))
    second.grad = before = torch.ones(3)
    inner._keep(second)
    assert second.grad is None
    second.grad = added = torch.zeros(3)
    [(leaf, grad)] = inner.collect()
    assert leaf is second and grad is added and second.grad is before
