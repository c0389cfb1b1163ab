"""The function mode of a session: code that checks for active modes decides as it would alone."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.overrides
from torch import nn
from torch.overrides import has_torch_function
from torch.utils.checkpoint import checkpoint
from watching import Calls, same, watched

import backprobe
from backprobe.observe.forward.torch_call_recorder import TorchCallRecorder
from backprobe.observe.session import Settings
from backprobe.torch_internals.mode_queries import queries_modes

pytestmark = pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors:UserWarning")

WATCHED: dict[str, Callable[[], Any]] = {
    "trace": backprobe.trace,
    "every third step": lambda: backprobe.trace(every=3),
    "stepped": lambda: backprobe.breakpoint_backward(action=lambda stop: "node"),
    "recording": backprobe.graph.recording,
}


def depth() -> int:
    return int(torch._C._len_torch_function_stack())


def is_seen(*tensors: torch.Tensor) -> bool:
    """A helper of the script's own, called from a forward."""
    return has_torch_function(tensors)


class Asks(nn.Module):
    """Scales by two on its fast path, and by three if a function mode is on."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * (3 if torch.overrides.has_torch_function((x,)) else 2)


class AsksThroughAHelper(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.scaled(x)

    def scaled(self, x: torch.Tensor) -> torch.Tensor:
        return x * (3 if is_seen(x) else 2)


class AsksForTheStack(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * (2 + len(torch.overrides._get_current_function_mode_stack()))


class Dispatches(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if torch.overrides.has_torch_function((x,)):
            return torch.overrides.handle_torch_function(Dispatches.forward, (x,), self, x)
        return x * 2


def encoder() -> Iterator[Callable[[], Any]]:
    model = nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 2, 32, batch_first=True), 2).eval()
    x, padding = torch.randn(2, 4, 16), torch.tensor([[0, 0, 0, 1], [0, 0, 1, 1]]).bool()
    yield lambda: model(x, src_key_padding_mask=padding)
    nested = torch.nested.nested_tensor([torch.randn(3, 16), torch.randn(2, 16)])
    yield lambda: model(nested).to_padded_tensor(0.0)  # raises on the slow path


def attention() -> Iterator[Callable[[], Any]]:
    class Own(nn.MultiheadAttention):
        pass

    for kind in (nn.MultiheadAttention, Own):
        model, x = kind(16, 2, batch_first=True).eval(), torch.randn(2, 4, 16)
        inside = nn.Sequential(nn.Linear(16, 16), nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)).eval()
        yield lambda model=model, x=x: model(query=x, key=x, value=x, need_weights=False)[0]
        yield lambda inside=inside, x=x: inside(x)


def own_code() -> Iterator[Callable[[], Any]]:
    for model in (Asks(), AsksThroughAHelper(), AsksForTheStack(), Dispatches()):
        yield lambda model=model: model(torch.ones(3))


@pytest.mark.parametrize("how", WATCHED)
@pytest.mark.parametrize("calls", [encoder, attention, own_code])
def test_results_without_a_graph_are_as_alone(calls: Any, how: str) -> None:
    torch.manual_seed(0)
    w = torch.ones(3, requires_grad=True)
    for call in calls():
        for off in (torch.no_grad, torch.inference_mode):
            with off():
                alone = call()
            with WATCHED[how]():
                for _ in range(7):  # the first steps are inspected more closely
                    with off():
                        assert same(call(), alone), off
                    if how != "recording":
                        (w * 2).sum().backward()
            assert depth() == 0


@pytest.mark.parametrize("how", WATCHED)
def test_frozen_modules_take_their_fast_path_though_gradient_mode_is_on(how: str) -> None:
    torch.manual_seed(0)
    for call in encoder():
        model = call.__closure__[0].cell_contents if call.__closure__ else None
        assert isinstance(model, nn.Module)
        model.requires_grad_(False)
        alone = call()
        with WATCHED[how]():
            assert same(call(), alone)


def test_a_call_that_builds_a_graph_is_recorded_inside() -> None:
    torch.manual_seed(0)
    model, x = nn.MultiheadAttention(16, 2, batch_first=True).eval(), torch.randn(2, 4, 16, requires_grad=True)
    frozen = nn.MultiheadAttention(16, 2, batch_first=True).eval().requires_grad_(False)
    for module in (model, frozen):
        alone = module(x, x, x)[0]
        with backprobe.trace(module) as trace:
            out = module(query=x, key=x, value=x)[0]
            assert same(out, alone)
            out.sum().backward()
        nodes = trace.steps[0].backwards[0].nodes
        assert any("Bmm" in node.name or "ScaledDot" in node.name for node in nodes)
        made = [node for node in nodes if node.name != "torch::autograd::AccumulateGrad"]
        assert all(node.site is not None for node in made), [(n.name, n.site) for n in made]


def test_the_stack_is_as_it_was_whatever_a_forward_does() -> None:
    class Fails(nn.Module):
        def __init__(self, error: type[BaseException]) -> None:
            super().__init__()
            self.error = error

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            found.append((has_torch_function((x,)), torch.overrides._get_current_function_mode_stack()))
            raise self.error

    class Inner(Calls):
        pass

    found: list[Any] = []
    session, _ = watched(Settings())
    outer, inner = Calls(), Inner()
    with outer:
        session.start()
        try:
            with inner:
                on = torch.overrides._get_current_function_mode_stack()
                assert [type(mode) for mode in on] == [Calls, TorchCallRecorder, Inner]
                for error in (ValueError, KeyboardInterrupt):
                    with contextlib.suppress(error), torch.no_grad():
                        Fails(error)(torch.ones(2))
                    assert found.pop() == (True, [outer, inner])
                    nn.Linear(2, 2)(torch.ones(2)).sum().backward()  # after Ctrl-C torch calls no hook
                    nn.Linear(2, 2)(torch.ones(2)).sum().backward()
                    assert torch.overrides._get_current_function_mode_stack() == on
            assert depth() == 2
        finally:
            session.stop()
        assert torch.overrides._get_current_function_mode_stack() == [outer]
    assert session.error is None


def test_breakpoints_are_removed_after_a_forward_that_was_interrupted() -> None:
    class Interrupted(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if has_torch_function((x,)):
                return x
            raise KeyboardInterrupt

    for how in ("trace", "stepped", "recording"):
        with WATCHED[how](), contextlib.suppress(KeyboardInterrupt), torch.no_grad():
            Interrupted()(torch.ones(2))
        assert depth() == 0


def test_which_classes_query_modes() -> None:
    asking = (nn.MultiheadAttention, nn.TransformerEncoder, nn.TransformerEncoderLayer)
    assert all(map(queries_modes, (*asking, Asks, AsksThroughAHelper, AsksForTheStack)))
    others = (nn.Linear, nn.Sequential, nn.TransformerDecoder, nn.LSTM, Dispatches)
    assert not any(map(queries_modes, others))


class AttentionBlock(nn.Module):
    """An attention module in a reentrant checkpoint: its forward runs without a graph, so without our function mode."""

    def __init__(self, unstable: bool) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.mlp = nn.Linear(8, 8)
        self.unstable, self.calls = unstable, 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        x = x + self.attention(x, x, x, need_weights=False)[0]
        if self.unstable and self.calls % 2:
            x = x.sin()
        return self.mlp(x).relu()


@pytest.mark.parametrize("unstable", [False, True])
def test_a_module_without_our_mode_in_a_reentrant_checkpoint(unstable: bool) -> None:
    block, first = AttentionBlock(unstable), nn.Linear(8, 8)
    optimizer = torch.optim.SGD([*block.parameters(), *first.parameters()], 0.01)
    with backprobe.trace() as trace:
        for _ in range(6):
            optimizer.zero_grad()
            out = checkpoint(block, first(torch.randn(2, 5, 8)), use_reentrant=True)
            out.square().mean().backward()
            optimizer.step()
    assert [one.kind for one in trace.findings] == ["checkpoint-mismatch"] * unstable, trace.findings
    assert not unstable or "sin ran in the forward" in trace.findings[0].title
