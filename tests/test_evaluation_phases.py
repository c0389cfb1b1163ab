"""Models that an evaluation leaves in evaluation mode for the next phase of training.

Only one line here calls ``eval`` as code, since every line that does counts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from backprobe.observe.session import Session, Settings
from backprobe.observe.sinks.memory import Collector
from backprobe.records import LeftInEvaluation, Site
from backprobe.source.grad_switches import is_in_evaluation, puts_mode_back

Tensor = torch.Tensor


class Wrapper(nn.Module):
    """A model around another one, as a library makes it."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor) -> Tensor:
        return self.model(x)


@torch.no_grad()
def evaluated(model: nn.Module) -> Tensor:
    model.eval()
    return model(torch.randn(8, 4))


def in_two_phases(wrap: Callable[[nn.Module], nn.Module], back: bool = False, frozen: bool = False) -> Any:
    """Train a model, evaluate it, and train it, or a head behind it, again with a new optimizer."""
    torch.manual_seed(0)
    collector = Collector()
    session = Session(collector, Settings(budget=None))
    session.start()
    model, head = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 1)), nn.Linear(1, 1)
    for phase in (0, 1):
        module = wrap(model) if phase else model
        if phase and back:
            module.train()
        model.requires_grad_(not (phase and frozen))
        parameters = [*module.parameters(), *(head.parameters() if phase and frozen else ())]
        optimizer = torch.optim.SGD(parameters, lr=1e-2)
        for _ in range(12):
            optimizer.zero_grad()
            out = module(torch.randn(8, 4))
            (head(out) if phase and frozen else out).square().mean().backward()
            optimizer.step()
        evaluated(model)
    session.stop()
    assert session.error is None, repr(session.error)
    return collector.trace(session).facts.of(LeftInEvaluation)


@pytest.mark.parametrize("wrap", [lambda model: model, Wrapper])
def test_a_phase_after_an_evaluation_that_does_not_switch_back(wrap: Callable[[nn.Module], nn.Module]) -> None:
    (found,) = in_two_phases(wrap)
    assert (found.model, found.since, found.train, found.evaluation) == ("Sequential", 12, 12, 12)
    assert [site.text for site in found.calls] == ["model.eval()"]


@pytest.mark.parametrize("wrap", [lambda model: model, Wrapper])
def test_a_phase_that_switches_back_or_does_not_train_the_model(wrap: Callable[[nn.Module], nn.Module]) -> None:
    assert in_two_phases(wrap, back=True) == ()
    assert in_two_phases(wrap, frozen=True) == ()


TUNES_ON_PURPOSE = """
import torch

def tune(model):
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    for _ in range(12):
        optimizer.zero_grad()
        model(torch.randn(8, 4)).square().mean().backward()
        optimizer.step()

def main(model):
    tune(model)
    model.eval()  # ON PURPOSE
    tune(model)
    with torch.no_grad():
        model(torch.randn(8, 4))

def check(model):
    model.eval()
    with torch.no_grad():
        model(torch.randn(8, 4))
"""


def test_a_function_that_also_trains_is_no_evaluation(tmp_path: Path) -> None:
    file = tmp_path / "script.py"
    file.write_text(TUNES_ON_PURPOSE)
    lines = TUNES_ON_PURPOSE.splitlines()
    calls = [Site(str(file), line + 1, "", text) for line, text in enumerate(lines) if ".eval()" in text]
    main, check = (replace(site, function=name) for site, name in zip(calls, ("main", "check"), strict=True))
    assert not is_in_evaluation(main, [str(file)])
    assert is_in_evaluation(check, [str(file)])


FREEZES = """
def build_index(model, items):
    model.eval()
    model.requires_grad_(False)  # index
    index = model(items)
    model.train()
    return index

def freeze_trunk(model, items):
    model.eval()
    model.requires_grad_(False)  # trunk
    model.train()

def second_phase(model, head):
    model.eval()
    model.requires_grad_(False)  # phase
    head.train()

def probe(model, items):
    model.requires_grad_(False)  # probe
    model.train(False)
    loss = model(items).sum()
    model.train()
    loss.backward()
"""


@pytest.mark.parametrize(("mark", "is_back"), [("index", True), ("trunk", False), ("phase", False), ("probe", False)])
def test_a_function_that_puts_the_training_mode_back(tmp_path: Path, mark: str, is_back: bool) -> None:
    file = tmp_path / "script.py"
    file.write_text(FREEZES)
    lines = FREEZES.splitlines()
    line = next(i for i, text in enumerate(lines) if text.endswith(f"# {mark}"))
    name = next(text for text in lines[line::-1] if text.startswith("def ")).removeprefix("def ").partition("(")[0]
    assert puts_mode_back(Site(str(file), line + 1, name, lines[line]), [str(file)]) is is_back
