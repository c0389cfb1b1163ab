"""Hooks on many nodes, added and removed together."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
import torch
from torch.autograd import function

from backprobe.torch_internals import node_hooks
from backprobe.torch_internals.node_hooks import NodeHooks


@pytest.fixture(params=["ours", "torch's"], autouse=True)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """By the quick way, and where torch has none by that name."""
    if request.param == "torch's":
        monkeypatch.setattr(node_hooks, "_home", None)
    before = function._HookMixin.__dict__["_register_hook"]
    yield
    assert function._HookMixin.__dict__["_register_hook"] is before


def some(nodes: int = 5) -> tuple[torch.Tensor, torch.Tensor, list]:
    x = torch.ones(2, requires_grad=True)
    y, found = x, []
    for _ in range(nodes):
        y = y.sin()
        found.append(y.grad_fn)
    return x, y.sum(), found


def test_hooks_run_until_they_are_removed_and_those_of_others_stay() -> None:
    x, loss, nodes = some()
    called: list = []
    first = nodes[0].register_hook(lambda *_: called.append("before"))
    ours = NodeHooks()
    ours.put((node.register_hook, lambda *_, i=i: called.append(i)) for i, node in enumerate(nodes))
    ours.put([(nodes[0].register_prehook, lambda *_: called.append("in"))])
    ours.put([(nodes[0].register_hook, lambda *_: called.append("again"))])
    last = nodes[0].register_hook(lambda *_: called.append("after"))
    torch.autograd.grad(loss, x, retain_graph=True)
    assert called == [4, 3, 2, 1, "in", "before", 0, "again", "after"]
    called.clear()
    ours.remove()
    first.remove()
    torch.autograd.grad(loss, x, retain_graph=True)
    assert called == ["after"]
    last.remove()
    torch.autograd.grad(loss, x)
    assert called == ["after"]


def test_whoever_registers_a_hook_meanwhile_gets_a_handle() -> None:
    x, loss, nodes = some()
    called: list = []
    handles: list = []

    def pairs():
        for node in nodes:
            handles.append(nodes[0].register_hook(lambda *_: called.append("theirs")))
            other = threading.Thread(
                target=lambda: handles.append(nodes[1].register_prehook(lambda *_: called.append("thread")))
            )
            other.start()
            other.join()
            yield node.register_hook, lambda *_: None

    ours = NodeHooks()
    ours.put(pairs())
    ours.remove()
    torch.autograd.grad(loss, x, retain_graph=True)
    assert called == ["thread"] * 5 + ["theirs"] * 5
    for handle in handles:
        handle.remove()
    torch.autograd.grad(loss, x)
    assert len(called) == 10


def test_an_error_during_registration_leaves_no_hooks() -> None:
    x, loss, nodes = some()
    called: list = []

    def pairs():
        yield nodes[0].register_hook, lambda *_: called.append("ours")
        raise ValueError("here")

    ours = NodeHooks()
    with pytest.raises(ValueError, match="here"):
        ours.put(pairs())
    ours.remove()
    torch.autograd.grad(loss, x)
    assert called == []


def test_two_at_once_do_not_meet() -> None:
    x, loss, nodes = some()
    called: list = []
    one, other = NodeHooks(), NodeHooks()

    def pairs():
        for node in nodes:
            other.put([(node.register_hook, lambda *_: called.append("other"))])
            yield node.register_hook, lambda *_: called.append("one")

    one.put(pairs())
    one.remove()
    torch.autograd.grad(loss, x, retain_graph=True)
    assert called == ["other"] * 5
    other.remove()
    torch.autograd.grad(loss, x)
    assert called == ["other"] * 5


def test_hooks_of_others_on_a_node_are_known() -> None:
    _, _, nodes = some()
    nodes[1].register_hook(lambda *_: None)
    gone = nodes[2].register_hook(lambda *_: None)
    gone.remove()
    hooks = [lambda *_: None for _ in nodes]
    ours = NodeHooks()
    ours.put((node.register_hook, hook) for node, hook in zip(nodes, hooks, strict=True))
    ours.put([(nodes[1].register_prehook, hooks[0])])
    assert ours.beside == [hooks[1]]
    ours.remove()
