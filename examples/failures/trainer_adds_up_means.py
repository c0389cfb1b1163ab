"""A Trainer leaves the division by the accumulated batches to the model, whose loss is a mean over its own batch."""

import tempfile

import torch
from torch import nn
from transformers import Trainer, TrainingArguments

EXPECT = {"kind": "accumulation-not-averaged", "line": ("cause", "LOSS")}


class Colours(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(6, 24), nn.ReLU(), nn.Linear(24, 3))

    def forward(self, pixels, labels=None, **kwargs):
        scores = self.layers(pixels)
        loss = nn.functional.cross_entropy(scores, labels)  # LOSS
        return {"loss": loss, "logits": scores}


torch.manual_seed(0)
pixels = torch.randn(400, 6)
data = [{"pixels": one, "labels": one[:3].argmax()} for one in pixels]
with tempfile.TemporaryDirectory() as folder:
    arguments = TrainingArguments(
        output_dir=folder,
        max_steps=20,
        per_device_train_batch_size=8,
        gradient_accumulation_steps=5,
        learning_rate=0.1,
        optim="sgd",
        use_cpu=True,
        report_to=[],
        save_strategy="no",
        disable_tqdm=True,
    )
    Trainer(model=Colours(), args=arguments, train_dataset=data).train()
