"""A Trainer whose compute_loss divides the sum of the errors by the number of labels in all accumulated batches, as the Trainer expects; a second one lets the Trainer divide its mean."""
import tempfile

import torch
from torch import nn
from transformers import Trainer, TrainingArguments

EXPECT = {
    "class": "accumulation-not-averaged", "framework": "transformers", "kind": None,
    "set": "ledger", "written": "2026-11-29",
}


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(10, 24), nn.GELU(), nn.Linear(24, 3))

    def forward(self, sensor, **kwargs):
        return self.layers(sensor)


class OfAllLabels(Trainer):
    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        scores = model(inputs["sensor"])
        loss = nn.functional.cross_entropy(scores, inputs["labels"], reduction="sum") / num_items_in_batch
        return (loss, scores) if return_outputs else loss


class OfTheBatch(Trainer):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.model_accepts_loss_kwargs = False

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        scores = model(inputs["sensor"])
        loss = nn.functional.cross_entropy(scores, inputs["labels"])
        return (loss, scores) if return_outputs else loss


def main():
    torch.manual_seed(6)
    sensor = torch.randn(480, 10)
    labels = sensor[:, :3].argmax(1)
    labels[::4] = -100
    data = [{"sensor": one, "labels": label} for one, label in zip(sensor, labels)]
    for trainer in (OfAllLabels, OfTheBatch):
        with tempfile.TemporaryDirectory() as folder:
            arguments = TrainingArguments(
                output_dir=folder, max_steps=30, per_device_train_batch_size=8, gradient_accumulation_steps=4, learning_rate=0.1, optim="sgd",
                use_cpu=True, report_to=[], save_strategy="no", disable_tqdm=True, remove_unused_columns=False,
            )
            trainer(model=Classifier(), args=arguments, train_dataset=data).train()


if __name__ == "__main__":
    main()
