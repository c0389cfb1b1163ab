"""Warnings that torch raises inside an op: same location and same count as without us."""

from __future__ import annotations

import traceback
import warnings
from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from watching import watched

from backprobe.observe.session import Settings
from backprobe.source.caller_frames import STAND_IN


def broadcast() -> None:
    F.mse_loss(torch.ones(3, 1, requires_grad=True), torch.ones(3)).backward()


def in_a_module() -> None:
    nn.L1Loss()(torch.ones(3, 1, requires_grad=True), torch.ones(3)).backward()


def grad_of_no_leaf() -> None:
    x = torch.ones(2, requires_grad=True)
    y = x * 2
    assert y.grad is None


def of_two_lines() -> None:
    x = torch.ones(2, requires_grad=True)
    for y in (x * 2, x * 3):
        assert y.grad is None
    assert (x * 4).grad is None


def with_create_graph() -> None:
    x = torch.ones(2, requires_grad=True)
    (x * x).sum().backward(create_graph=True)
    x.grad = None


def from_python() -> None:
    F.softmax(torch.ones(2, 3))  # no dim


CASES = [broadcast, in_a_module, grad_of_no_leaf, of_two_lines, with_create_graph, from_python]


def said(case: Callable[[], None], rounds: int, how: str) -> list[tuple[object, ...]]:
    for module in {id(vars(m)): m for m in (torch, torch.nn.functional)}.values():
        vars(module).pop("__warningregistry__", None)
    globals().pop("__warningregistry__", None)
    torch.set_warn_always(True)
    try:
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter(how)  # type: ignore[arg-type]
            for _ in range(rounds):
                case()
    finally:
        torch.set_warn_always(False)
    return [(w.category, str(w.message), w.filename, w.lineno) for w in seen]


@pytest.mark.parametrize("how", ["always", "default"])
@pytest.mark.parametrize("level", ["nodes", "minimal"])
@pytest.mark.parametrize("case", CASES)
def test_a_warning_has_the_place_of_the_call(case: Callable[[], None], level: str, how: str) -> None:
    alone = said(case, 6, how)
    assert alone
    session, _ = watched(Settings(level))
    session.start()
    try:
        seen = said(case, 6, how)
    finally:
        session.stop()
    assert session.error is None
    assert seen == alone


def test_a_stand_in_is_no_line_of_the_users() -> None:
    session, collector = watched()
    session.start()
    try:
        (torch.ones(2, 3, requires_grad=True).log() * 0).sum().backward()
        with pytest.raises(RuntimeError, match="shapes") as caught:
            torch.ones(2, 3) @ torch.ones(2, 3)
    finally:
        session.stop()
    frames = [f.name for f in traceback.extract_tb(caught.value.__traceback__)]
    assert frames[0] == "test_a_stand_in_is_no_line_of_the_users" and STAND_IN in frames
    sites = {r.site for s in collector.trace(session).steps for b in s.backwards for r in b.nodes if r.site}
    assert {site.function for site in sites} == {"test_a_stand_in_is_no_line_of_the_users"}


def test_a_namespace_that_is_no_module_is_not_kept() -> None:
    import gc
    import weakref

    class Held: ...

    space = {"torch": torch, "held": Held(), "__name__": "nowhere"}
    gone = weakref.ref(space["held"])
    session, _ = watched()
    session.start()
    try:
        exec("x = torch.ones(2, requires_grad=True).exp().sum()", space)
        space.clear()
        del space
        gc.collect()
        assert gone() is None
    finally:
        session.stop()
