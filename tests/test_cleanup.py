"""Promise 2: a session removes what it attached, and keeps nothing alive."""

from __future__ import annotations

import gc
import subprocess
import sys
import weakref

import pytest
import torch
from torch import nn
from torch.nn.modules import module as modules
from torch.optim import optimizer
from watching import watched

import backprobe
from backprobe.observe.session import Session, Settings


def attached() -> list:
    """Everything in torch that a session could have left something in."""
    return [
        torch._C._len_torch_function_stack(),
        len(modules._global_forward_hooks),
        len(modules._global_forward_pre_hooks),
        len(modules._global_forward_hooks_always_called),
        len(optimizer._global_optimizer_pre_hooks),
        len(optimizer._global_optimizer_post_hooks),
        torch.is_grad_enabled(),
    ]


def train(model, rounds=5):
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(rounds):
        opt.zero_grad()
        model(torch.randn(4, 3)).sum().backward()
        opt.step()


@pytest.mark.parametrize("level", ["minimal", "nodes", "full"])
def test_nothing_remains_attached(level: str) -> None:
    before = attached()
    session, _ = watched(Settings(level))
    session.start()
    assert attached() != before
    train(nn.Linear(3, 2))
    session.stop()
    assert attached() == before
    session.stop()  # a second time is harmless


def test_nothing_remains_when_the_block_raises() -> None:
    before = attached()
    model = nn.Linear(3, 2)
    with pytest.raises(ZeroDivisionError), backprobe.trace(model):
        train(model)
        1 / 0  # noqa: B018
    assert attached() == before


def test_nothing_remains_when_a_backward_raises() -> None:
    class Raises(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 1

        @staticmethod
        def backward(ctx, g):
            raise ValueError("here")

    before = attached()
    x = torch.ones(2, requires_grad=True)
    with backprobe.trace() as trace:
        y = Raises.apply(x * 2)
        with pytest.raises(ValueError, match="here"):
            y.sum().backward()
    assert attached() == before
    assert [f.kind for f in trace.findings] == ["backward-error"]


def test_nodes_keep_no_hooks_when_the_graph_lives_on() -> None:
    session, _ = watched()
    session.start()
    x = torch.ones(3, requires_grad=True)
    y = (x * 2).exp().sum()
    for _ in range(5):
        y.backward(retain_graph=True)
    session.stop()
    node = y.grad_fn
    while node is not None:
        handle = node.register_hook(lambda *_: None)
        assert len(handle.hooks_dict_ref()) == 1  # ours alone
        handle.remove()
        node = node.next_functions[0][0] if node.next_functions else None


def test_models_tensors_and_graphs_are_freed() -> None:
    session, _ = watched()
    session.start()
    model = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 1))
    x = torch.randn(4, 3)
    loss = model(x).sum()
    loss.backward()
    refs = [weakref.ref(o) for o in (model, x, loss, *model.parameters())]
    refs.append(weakref.ref(model[0].weight.grad))
    del model, x, loss
    gc.collect()
    assert [r() for r in refs] == [None] * len(refs)
    session.stop()


def test_memory_does_not_grow() -> None:
    """A leak makes every later count of live tensors larger than every earlier one.

    Counts may go up and down: losses that wait for the next fetch are alive, as many as
    there were steps since the last one.
    """

    def alive():
        gc.collect()
        return sum(1 for o in gc.get_objects() if issubclass(type(o), torch.Tensor))

    model = nn.Sequential(nn.Linear(3, 3), nn.Tanh())
    session, _ = watched()
    session.start()
    counts = []
    for _ in range(8):
        train(model, 10)
        counts.append(alive())
    session.stop()
    assert min(counts[4:]) <= max(counts[:4]), counts


CHAIN = """
import torch, backprobe
x = torch.ones(1, requires_grad=True)
with backprobe.trace(steps=(0, {last})) as trace:
    for _ in range(2):
        y = x
        for _ in range({length}):
            y = y + 1
        y.backward()
        del y
        x.grad = None
print(len(trace.steps[0].backwards[0].nodes), trace.findings)
"""


@pytest.mark.slow
@pytest.mark.parametrize("length", [200_000])
def test_a_long_chain_neither_recurses_nor_crashes(length: int) -> None:
    code = CHAIN.format(length=length, last=None)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout == f"{length + 1} []\n"


class Fails:
    """A sink with a fault."""

    def backward(self, recorded):
        raise KeyError("fault of ours")

    def step(self, step, session): ...


def test_a_fault_of_ours_does_not_reach_the_script() -> None:
    before = attached()
    torch.manual_seed(0)
    alone = nn.Linear(3, 2)
    train(alone)
    torch.manual_seed(0)
    seen = nn.Linear(3, 2)
    session = Session(Fails())
    session.start()
    train(seen)
    session.stop()
    assert attached() == before
    assert torch.equal(alone.weight, seen.weight)
    (unseen,) = session.run_facts.unseen()
    assert (unseen.what, "fault of ours" in unseen.note) == ("internal error", True)


def test_locals_of_a_frame_are_unchanged() -> None:
    def train_with_locals():
        model, x = nn.Linear(3, 1), torch.randn(2, 3)
        mine = locals()
        model(x).log().sum().backward()
        return mine

    session, _ = watched()
    session.start()
    mine = train_with_locals()
    session.stop()
    assert {"model", "x"} <= set(mine)
