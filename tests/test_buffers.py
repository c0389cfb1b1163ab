"""Buffers that became NaN or Inf, and running statistics of frozen layers."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import pytest
import torch
from accelerator import stand_in
from torch import nn

from backprobe.observe.session import Session, Settings
from backprobe.observe.sinks.memory import Collector
from backprobe.records import LedgerBuffer

NAN = float("nan")


class Own(nn.Module):
    """Keeps a running mean of its inputs, and a table that is NaN from the beginning."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("running", torch.zeros(4))
        self.register_buffer("table", torch.full((3,), NAN))
        self.register_buffer("largest", torch.zeros(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.running.mul_(0.9).add_(x.detach().mean(0), alpha=0.1)
        return x


def trained(
    batch: Callable[[nn.Module, int], torch.Tensor],
    steps: int = 30,
    settings: Settings | None = None,
    forgets: bool = False,
) -> Any:
    """A run that skips batches with a loss that is not finite; the model may be gone when it ends."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 4), Own())
    collector = Collector()
    session = Session(collector, settings or Settings(budget=None))
    session.start()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for n in range(steps):
        x = batch(model, n)
        loss = model(x).square().mean()
        if not loss.isfinite():
            continue
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    if forgets:
        del model, optimizer
        gc.collect()
    session.stop()
    assert session.error is None, repr(session.error)
    return collector.trace(session)


def one_nan(model: nn.Module, n: int) -> torch.Tensor:
    x = torch.randn(16, 4)
    return x.index_fill(0, torch.tensor([2]), NAN) if n == 9 else x


@pytest.mark.parametrize("settings", [Settings(budget=None), Settings()])
def test_a_nan_that_a_skipped_batch_left(settings: Settings) -> None:
    (found,) = trained(one_nan, settings=settings).findings
    assert found.kind == "nonfinite-buffer" and found.severity == "error" and found.module == "1"
    assert found.parameters == ("1.running_mean", "1.running_var", "4.running")
    assert found.step is not None and found.step >= 9
    texts = {site.role: site.site.text for site in found.sites}
    assert texts == {"cause": "loss = model(x).square().mean()", "condition": "if not loss.isfinite():"}


def test_the_step_is_known_between_looks() -> None:
    def late(model: nn.Module, n: int) -> torch.Tensor:
        return one_nan(model, 9 if n == 40 else 0)

    (found,) = trained(late, steps=60).findings
    assert found.step == 40 and found.evidence["finite_after_step"] == 39
    assert "in step 40" in found.title


def of_buffers(trace: Any) -> list[Any]:
    return [found for found in trace.findings if found.kind == "nonfinite-buffer"]


def test_the_lines_are_known_of_a_model_that_is_gone() -> None:
    (found,) = of_buffers(trained(one_nan, forgets=True))
    assert found.sites[0].site.text == "loss = model(x).square().mean()"


def test_buffers_on_an_accelerator_are_read_without_waiting() -> None:
    with stand_in() as waits:
        (found,) = of_buffers(trained(one_nan))
    assert found.parameters == ("1.running_mean", "1.running_var", "4.running") and found.step >= 9
    assert waits.calls == [] and len([chain for chain in waits.fetches if "buffers.py" in chain]) == 1


def put_back(model: nn.Module, n: int) -> torch.Tensor:
    if n == 10:
        for buffer in model.buffers():
            buffer.zero_()
    return one_nan(model, n)


def largest_is_infinite(model: nn.Module, n: int) -> torch.Tensor:
    model[4].largest.fill_(float("inf") if n > 3 else n)
    return torch.randn(16, 4)


@pytest.mark.parametrize("batch", [lambda model, n: torch.randn(16, 4), put_back, largest_is_infinite])
def test_buffers_that_are_as_they_should_be(batch: Any) -> None:
    assert trained(batch).findings == []


def test_a_running_variance_that_overflows() -> None:
    def batch(model: nn.Module, n: int) -> torch.Tensor:
        if n > 5:
            model[1].running_var.fill_(float("inf"))
        return torch.randn(16, 4)

    found = trained(batch).findings
    assert [(f.kind, f.parameters, f.evidence["value"]) for f in found] == [
        ("nonfinite-buffer", ("1.running_var",), "Inf")
    ]


def frozen(pretrained: int, offset: float, evaluates: bool = False, averages: bool = False) -> Any:
    """A run that freezes a body after some steps, and trains a head on data with an offset."""
    torch.manual_seed(0)
    body, head = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8)), nn.Linear(8, 1)
    model = nn.Sequential(body, head)
    collector = Collector()
    session = Session(collector, Settings(budget=None))
    session.start()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for n in range(pretrained + 40):
        if n == pretrained:
            body.requires_grad_(False)
            body.train(not evaluates)
        x = torch.randn(32, 4) + (offset if n >= pretrained else 0)
        loss = (model(x) - x.sum(1, keepdim=True)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if averages:
            with torch.no_grad():
                for p in body.parameters():
                    p.mul_(0.999)
    session.stop()
    assert session.error is None, repr(session.error)
    return collector.trace(session).findings


def test_frozen_statistics_that_follow_other_data() -> None:
    (found,) = frozen(20, 6.0)
    assert (found.kind, found.severity, found.step) == ("frozen-buffer-changes", "warning", 19)  # frozen before 20
    assert found.sites[0].site.text == "body.requires_grad_(False)" and found.module == "0.1"


@pytest.mark.parametrize(
    "options",
    [
        {"pretrained": 20, "offset": 0.0},
        {"pretrained": 0, "offset": 6.0},  # statistics that were never learned
        {"pretrained": 20, "offset": 6.0, "evaluates": True},
        {"pretrained": 20, "offset": 6.0, "averages": True},
    ],
)
def test_frozen_statistics_that_are_as_they_should_be(options: dict[str, Any]) -> None:
    assert frozen(**options) == []


def buffers_of(act: Callable[[Any, int], None], steps: int = 12, settings: Settings | None = None) -> Any:
    """A run in which `act` changes the model after each step."""

    def batch(model: nn.Module, n: int) -> torch.Tensor:
        act(model, n)
        return torch.randn(8, 4)

    return trained(batch, steps, settings)


def history(trace: Any, name: str) -> LedgerBuffer:
    (found,) = trace.ledger(name).buffers
    return found


def test_what_changes_buffers() -> None:
    def act(model: Any, n: int) -> None:
        if n == 5:
            model[4].largest.fill_(3.0)
        if n == 7:
            model.load_state_dict({k: v.clone() for k, v in model.state_dict().items()})

    trace = buffers_of(act)
    mean = history(trace, "1.running_mean")
    assert (mean.class_name, mean.changed, mean.forwards, mean.unknown) == ("BatchNorm1d", 11, 11, 0)
    assert mean.called is not None and mean.called.text == "loss = model(x).square().mean()"
    assert [(one.call, one.times) for one in mean.writes] == [("load_state_dict", 1)]
    running = history(trace, "4.running")
    assert {one.call for one in running.writes} == {"mul_", "add_", "load_state_dict"} and not running.forwards
    largest = history(trace, "4.largest")
    assert largest.changed == 2 and [one.call for one in largest.writes] == ["fill_", "load_state_dict"]
    assert largest.writes[0].site.text == "model[4].largest.fill_(3.0)"  # type: ignore[union-attr]
    assert [name for one in trace.ledger("1").buffers for name in one.names] == [
        *("1.running_mean", "1.running_var", "1.num_batches_tracked")
    ]


def test_a_buffer_that_never_changes_and_layers_in_evaluation_mode() -> None:
    trace = buffers_of(lambda model, n: model[1].eval() and None)
    mean = history(trace, "1.running_mean")
    assert mean.looks == 12 and mean.changed == mean.forwards == 0 and mean.called is None  # once when the run ended
    assert repr(trace.ledger("1.running_mean")).endswith("of BatchNorm1d: compared 12 times, never changed")


def test_a_buffer_from_which_step_on_is_not_finite() -> None:
    def act(model: Any, n: int) -> None:
        if n == 6:
            model[4].largest.fill_(NAN)

    trace = buffers_of(act)
    largest = history(trace, "4.largest")
    assert (largest.what, largest.step, largest.changed) == ("NaN", 5, 1)  # before the forward of step 6
    lines = repr(trace.ledger("4.largest")).splitlines()
    assert lines[-1].split() == ["5", "on", "NaN"] and "written by fill_" in lines[-2]


def test_changes_of_buffers_in_steps_that_are_not_recorded() -> None:
    mean = history(buffers_of(lambda model, n: None, 300, Settings("minimal")), "1.running_mean")
    assert mean.changed == mean.forwards == mean.looks > 5 and not mean.unknown


def test_instance_norm_and_a_buffer_that_is_assigned() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.InstanceNorm1d(4, track_running_stats=True, affine=True))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    model.register_buffer("mark", torch.zeros(1))
    collector = Collector()
    session = Session(collector, Settings(budget=None))
    session.start()
    for n in range(6):
        model.mark = torch.full((1,), float(n // 2))
        optimizer.zero_grad()
        model(torch.randn(2, 4, 8)).square().sum().backward()
        optimizer.step()
    session.stop()
    trace = collector.trace(session)
    mean, mark = history(trace, "0.running_mean"), history(trace, "mark")
    assert mean.changed == mean.unknown == 5  # no count of batches, and no op that is known to write
    assert (mark.changed, mark.unknown, mark.writes) == (2, 2, ())
    assert "changed, by a call that was not observed" in repr(trace.ledger("mark"))
