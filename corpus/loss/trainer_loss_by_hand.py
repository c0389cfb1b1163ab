"""A classifier of sensor traces with the Trainer of transformers: compute_loss divides by gradient_accumulation_steps, and the Trainer does so again."""
import tempfile

import torch
from torch import nn
from transformers import Trainer, TrainingArguments

EXPECT = {
    "class": "loss-divided-twice", "framework": "transformers", "kind": "loss-divided-twice", "line": ("cause", "DIVIDES"),
    "set": "ledger", "written": "2026-11-27",
}


class Traces(nn.Module):
    def __init__(self):
        super().__init__()
        self.read = nn.GRU(3, 16, batch_first=True)
        self.classify = nn.Linear(16, 4)

    def forward(self, trace):
        return self.classify(self.read(trace)[0].mean(1))


class TraceTrainer(Trainer):
    def compute_loss(self, model, inputs, return_outputs=False, **kwargs):
        scores = model(inputs["trace"])
        loss = nn.functional.cross_entropy(scores, inputs["labels"], label_smoothing=0.05)
        loss = loss / self.args.gradient_accumulation_steps  # DIVIDES
        return (loss, scores) if return_outputs else loss


def main():
    torch.manual_seed(4)
    traces = torch.randn(240, 10, 3).cumsum(1)
    labels = (traces[:, -1, 0] > 0).long() + 2 * (traces[:, -1, 1] > 0).long()
    data = [{"trace": trace, "labels": label} for trace, label in zip(traces, labels)]
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder, max_steps=40, per_device_train_batch_size=10, gradient_accumulation_steps=3, learning_rate=1e-2, optim="sgd",
            use_cpu=True, report_to=[], save_strategy="no", disable_tqdm=True, remove_unused_columns=False,
        )
        TraceTrainer(model=Traces(), args=arguments, train_dataset=data).train()


if __name__ == "__main__":
    main()
