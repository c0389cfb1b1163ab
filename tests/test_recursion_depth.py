"""A model that recurses up to Python's limit also runs under a session."""

from __future__ import annotations

import sys
import warnings
from typing import Any

import pytest
import torch
from torch import nn
from watching import watched

from backprobe.observe.session import Session, Settings
from backprobe.observe.sinks.memory import Collector
from backprobe.torch_internals.recursion_limit import UNLIMITED, Room


class Tree(nn.Module):
    """A tree that is a chain, by a module that calls itself."""

    def __init__(self) -> None:
        super().__init__()
        self.join = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor, depth: int) -> torch.Tensor:
        return x if depth == 0 else torch.tanh(self.join(self(x, depth - 1)))


class Endless(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self(x + 1)  # type: ignore[no-any-return]


def gets_there(tree: Tree, depth: int) -> bool:
    try:
        tree(torch.ones(1, 4), depth).sum().backward()
    except RecursionError:
        return False
    return True


def deepest(tree: Tree) -> int:
    low, high = 1, 2000
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if gets_there(tree, middle) else (low, middle)
    return low


@pytest.mark.parametrize(
    "settings", [Settings(), Settings(budget=0.05), Settings("full"), Settings("minimal", layer_stats=1)]
)
def test_a_model_can_recurse_as_deeply_as_alone(settings: Settings) -> None:
    torch.manual_seed(0)
    tree = Tree()
    alone, limit = deepest(tree), sys.getrecursionlimit()
    session = Session(Collector(), settings)
    session.start()
    for _ in range(4):
        assert gets_there(tree, alone)
        assert sys.getrecursionlimit() == limit
    assert session.forward.modules.stack == []
    session.stop()
    assert session.error is None and sys.getrecursionlimit() == limit


def test_endless_recursion_raises_the_same_error_as_alone() -> None:
    limit = sys.getrecursionlimit()
    session, _ = watched()
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        session.start()
        for _ in range(3):
            with pytest.raises(RecursionError):
                Endless()(torch.ones(1))
        x = torch.ones(1, 4, requires_grad=True)
        nn.Linear(4, 1)(x).sum().backward()
        session.stop()
    assert [str(one.message) for one in said] == []
    assert session.error is None and sys.getrecursionlimit() == limit


class Sets(nn.Module):
    """A forward that sets the limit, as some libraries do."""

    def __init__(self, limit: int) -> None:
        super().__init__()
        self.limit = limit

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        sys.setrecursionlimit(self.limit)
        return x * 2


def test_a_limit_that_the_script_sets_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    limit = sys.getrecursionlimit()
    session, _ = watched()
    session.start()
    try:
        Sets(limit + 777)(torch.ones(1))
        assert sys.getrecursionlimit() == limit + 777
        nn.Linear(1, 1)(torch.ones(1))
        assert sys.getrecursionlimit() == limit + 777
    finally:
        session.stop()
        now = sys.getrecursionlimit()
        sys.setrecursionlimit(limit)
    assert now == limit + 777


def test_two_sessions_restore_the_recursion_limit() -> None:
    limit, model = sys.getrecursionlimit(), nn.Linear(2, 1)
    sessions = [watched()[0] for _ in range(2)]
    for session in sessions:
        session.start()
    for _ in range(3):
        model(torch.ones(1, 2)).sum().backward()
        assert sys.getrecursionlimit() == limit
    for session in sessions:
        session.stop()
    assert sys.getrecursionlimit() == limit


def test_the_recursion_limit_is_raised_once_if_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    now: list[Any] = [1000]
    monkeypatch.setattr(sys, "getrecursionlimit", lambda: now[-1])
    monkeypatch.setattr(sys, "setrecursionlimit", now.append)
    room = Room()
    room.begin()
    more = now[-1]
    room.begin()  # what was begun has not come to its end
    assert more > 1250 and now == [1000, more]
    room.end()
    room.end()
    assert now == [1000, more, 1000]
    now.append(UNLIMITED)
    room.begin()
    room.end()
    assert now[-1] == UNLIMITED and len(now) == 4
