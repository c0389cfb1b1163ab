"""Installed training libraries do what Note [Libraries that accumulate] says."""

from __future__ import annotations

import sys
from pathlib import Path
from types import FrameType

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from backprobe.observe.backward.accumulating_libraries import BackwardCaller, accelerate_count, backward_caller

#: Batches of a step, and samples of a batch.
COUNT, SAMPLES = 3, 4


class Witness(torch.autograd.Function):
    """Notes who makes the backward call, and with which gradient of the loss."""

    seen: list[tuple[BackwardCaller, float]]

    @staticmethod
    def forward(ctx, loss: torch.Tensor) -> torch.Tensor:
        return loss.clone()

    @staticmethod
    def backward(ctx, grad: torch.Tensor) -> torch.Tensor:
        frame: FrameType | None = sys._getframe()
        Witness.seen.append((backward_caller(frame), float(grad)))
        return grad


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(5, 2)

    def forward(self, x: torch.Tensor, labels: torch.Tensor | None = None) -> dict[str, torch.Tensor]:
        logits = self.layer(x)
        return {"loss": Witness.apply(F.cross_entropy(logits, labels)), "logits": logits}


class ModelOfAnyArguments(Model):
    def forward(self, x: torch.Tensor, labels: torch.Tensor | None = None, **kwargs: object) -> dict[str, torch.Tensor]:
        return super().forward(x, labels)


@pytest.mark.parametrize(
    ("model", "items", "factor"), [(Model, None, 1 / COUNT), (ModelOfAnyArguments, float(COUNT * SAMPLES), 1.0)]
)
def test_a_trainer_leaves_the_division_to_some_losses(model, items, factor, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    Witness.seen = []
    arguments = transformers.TrainingArguments(
        output_dir=str(tmp_path),
        max_steps=2,
        per_device_train_batch_size=SAMPLES,
        gradient_accumulation_steps=COUNT,
        use_cpu=True,
        report_to=[],
        save_strategy="no",
        disable_tqdm=True,
    )
    data = [{"x": torch.randn(5), "labels": torch.tensor(i % 2)} for i in range(2 * COUNT * SAMPLES)]
    transformers.Trainer(model=model(), args=arguments, train_dataset=data).train()
    callers, factors = zip(*Witness.seen, strict=True)
    assert set(callers) == {BackwardCaller("transformers", items)} and len(callers) == 2 * COUNT
    assert factors == pytest.approx([factor] * len(factors))


def test_an_accelerator_divides_in_its_backward() -> None:
    accelerate = pytest.importorskip("accelerate")
    Witness.seen = []
    state = accelerate.state.GradientState._shared_state
    before = dict(state)
    try:
        accelerate.state.GradientState._reset_state()
        assert accelerate_count() == 1
        accelerator = accelerate.Accelerator(cpu=True, gradient_accumulation_steps=COUNT)
        assert accelerate_count() == COUNT
        model, x = Model(), torch.randn(SAMPLES, 5)
        accelerator.backward(model(x, torch.zeros(SAMPLES, dtype=torch.long))["loss"])
        model(x, torch.zeros(SAMPLES, dtype=torch.long))["loss"].backward()
    finally:
        state.clear()
        state.update(before)
    assert [caller.library for caller, _ in Witness.seen] == ["accelerate", ""]
    assert [factor for _, factor in Witness.seen] == pytest.approx([1 / COUNT, 1.0])
