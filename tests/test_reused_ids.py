"""Objects that get the id of a freed object: nothing that is known of the freed one is taken for theirs."""

from __future__ import annotations

import weakref
from pathlib import Path
from typing import Any

import pytest
import torch
from reusing import REUSED, reuse, with_id
from subclassed import Wrapped
from torch import nn
from watching import watched

import backprobe
from backprobe.comparing.files import read_tape
from backprobe.observe.op_record.mode import OpRecordingMode
from backprobe.observe.op_record.tensor_copies import TensorCopies
from backprobe.records import Cut, HookSeen
from backprobe.source.frames import Frames
from backprobe.torch_internals.references import MIN_PRUNED_ENTRIES, IdentityMap, tensor_ref

__all__ = ["reuse"]
pytestmark = pytest.mark.usefixtures("reuse")


class Net(nn.Module):
    """A model of one weight, which has the reused id."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(3, 1, bias=False)
        with_id(self.fc.weight)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.fc(x)
        return out


class Other(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.out = nn.Linear(3, 1, bias=False)
        with_id(self.out.weight)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.out(x)
        return out


def step(model: nn.Module) -> None:
    model(torch.ones(2, 3, requires_grad=True)).sum().backward()


def test_a_mapping_by_identity() -> None:
    known: IdentityMap[str] = IdentityMap(tensor_ref)
    first, other = with_id(torch.ones(1)), torch.ones(1)
    known[first], known[other] = "first", "other"
    assert first in known and known.get(first) == "first"
    del first
    second = with_id(torch.ones(1))
    assert second not in known and known.get(second) is None and known.pop(second) is None
    assert known.get(other) == "other" and known.pop(other) == "other" and len(known) == 0
    for _ in range(2 * MIN_PRUNED_ENTRIES):
        known[torch.ones(1)] = "freed"
    assert len(known) <= MIN_PRUNED_ENTRIES
    known.clear()
    assert len(known) == 0


def test_a_graph_of_other_leaves_is_another_layout() -> None:
    session, _ = watched()
    session.start()
    for _ in range(2):
        weight = with_id(nn.Parameter(torch.ones(3)))
        for _ in range(4):
            (2 * weight).sum().backward()
        gone = weakref.ref(weight)
        del weight
        assert gone() is None
    session.stop()
    assert session.error is None and [leaf.reached for leaf in session.forward.names.leaves._all] == [4, 4]


def test_a_detach_point_names_the_leaves_that_it_cut() -> None:
    session, collector = watched()
    session.start()
    noise = with_id(torch.ones(3, requires_grad=True))
    (2 * noise).detach()
    del noise
    model = Net()
    for _ in range(3):
        step(model)
    session.stop()
    [cut] = [one for one in collector.trace(session).facts.of(Cut) if one.op == "detach"]
    assert cut.parameters == ()


@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad")
def test_a_checkpoint_without_inputs_that_require_a_gradient_names_the_parameters_inside() -> None:
    session, collector = watched()
    session.start()
    model = Net()
    for _ in range(2):
        out = torch.utils.checkpoint.checkpoint(model, torch.ones(2, 3), use_reentrant=True)
        (out.sum() * torch.ones((), requires_grad=True)).backward()
    del model, out
    other = Other()
    for _ in range(3):
        step(other)
    session.stop()
    found = [one.parameters for one in collector.trace(session).facts.of(Cut) if one.op == "checkpoint"]
    assert found == [("fc.weight",)]


def test_a_hook_on_a_module_with_the_id_of_a_called_one() -> None:
    class Bypassed(Net):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return nn.functional.linear(x, self.fc.weight)

    def hook(module: Any, grads: Any, outputs: Any) -> None: ...

    session, collector = watched()
    session.start()
    for kind in (Net, Bypassed):
        model = kind()
        with_id(model.fc, REUSED + 2).register_full_backward_hook(hook)
        for _ in range(3):
            step(model)
        del model
    session.stop()
    assert [one.reason for one in collector.trace(session).facts.of(HookSeen)] == ["forward"]


def test_a_hook_on_an_uncalled_module_that_holds_what_no_backward_reached() -> None:
    class Late(Net):
        """A model that gets a parameter, which no backward call reaches, after its first call."""

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * torch.ones((), requires_grad=True)

    session, collector = watched()
    session.start()
    model: nn.Module = Net()
    for _ in range(3):
        step(model)
    del model
    late = Late()
    weight, late.fc = late.fc, nn.Identity()
    step(late)
    late.fc = weight
    late.fc.register_full_backward_hook(lambda *_: None)
    session.stop()
    assert not collector.trace(session).facts.of(HookSeen)


def test_an_activation_with_the_id_of_a_freed_weight(tmp_path: Path) -> None:
    with backprobe.trace(record_ops=tmp_path):
        model = Net()
        for _ in range(2):
            step(model)
        del model
        with_id(torch.ones(2, 3)).exp()
        step(Other())
    inputs = [one.name for op in read_tape(tmp_path).ops if op.name == "exp" for one in op.inputs]
    assert inputs == [""]


def test_a_wrapper_with_the_id_of_a_freed_one_has_other_memory() -> None:
    mode = OpRecordingMode(Frames(), lambda: None, IdentityMap(tensor_ref), TensorCopies(0, False), lambda error: None)
    first = with_id(Wrapped(torch.ones(2)))
    key, memory = mode._layout_key(first), mode._storage_key(first)
    assert (key, memory) == (mode._layout_key(first), mode._storage_key(first))
    del first
    second = with_id(Wrapped(torch.ones(2)))
    assert mode._layout_key(second) != key and mode._storage_key(second) != memory
