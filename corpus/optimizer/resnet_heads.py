"""A small ResNet trained on digits, then frozen under the HF Trainer to add a head for inverted images; the old task is damaged.

Report: https://github.com/pytorch/pytorch/issues/86590 (with requires_grad=False the BatchNorm running statistics of the
frozen layers still change), https://github.com/lightly-ai/lightly/issues/1438

The backbone is frozen by requires_grad only. The Trainer puts the whole model in train mode, so the running mean and
variance drift to the new images: the accuracy of the untouched first head drops from 0.947 to 0.252
(with the backbone kept in eval mode it stays 0.947).
"""
import tempfile

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import Dataset
from transformers import ResNetConfig, ResNetModel, Trainer, TrainingArguments

EXPECT = {
    "framework": "transformers", "kind": "frozen-buffer-changes", "line": ("cause", "OTHER"),
    "what": "The backbone is frozen only through requires_grad, so its BatchNorm running statistics go on changing in train mode and spoil the features for the first head; keep the backbone in eval mode as well.",
    "set": "twentieth", "written": "2026-11-27",
}


class TwoHeads(nn.Module):
    def __init__(self):
        super().__init__()
        cfg = ResNetConfig(num_channels=1, embedding_size=16, hidden_sizes=[16, 32], depths=[1, 1], layer_type="basic")
        self.backbone = ResNetModel(cfg)
        self.head_a = nn.Linear(32, 10)
        self.head_b = nn.Linear(32, 2)

    def features(self, pixel_values):
        return self.backbone(pixel_values).pooler_output.flatten(1)

    def forward(self, pixel_values, labels=None):
        logits = self.head_b(self.features(pixel_values))
        loss = F.cross_entropy(logits, labels) if labels is not None else None
        return {"loss": loss, "logits": logits}


class Parity(Dataset):
    def __init__(self, x, y):
        self.x, self.y = 1.5 - 2 * x, y % 2

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return {"pixel_values": self.x[i], "labels": self.y[i]}


def accuracy_a(model, x, y):
    model.eval()
    with torch.no_grad():
        return (model.head_a(model.features(x)).argmax(1) == y).float().mean().item()


def main():
    torch.manual_seed(0)
    digits = load_digits()
    x = F.interpolate(torch.tensor(digits.images, dtype=torch.float32)[:, None] / 16, size=24)
    y = torch.tensor(digits.target)
    x_train, y_train, x_val, y_val = x[:1400], y[:1400], x[1400:], y[1400:]

    model = TwoHeads()
    opt = torch.optim.AdamW(list(model.backbone.parameters()) + list(model.head_a.parameters()), lr=5e-3)
    model.train()
    for step in range(90):
        idx = torch.randint(0, len(x_train), (64,))
        loss = F.cross_entropy(model.head_a(model.features(x_train[idx])), y_train[idx])
        opt.zero_grad()
        loss.backward()
        opt.step()
    print(f"stage 1 loss {loss.item():.3f} accuracy of head A {accuracy_a(model, x_val, y_val):.3f}")

    for p in list(model.backbone.parameters()) + list(model.head_a.parameters()):
        p.requires_grad = False  # CAUSE
    with tempfile.TemporaryDirectory() as out:
        args = TrainingArguments(output_dir=out, max_steps=80, per_device_train_batch_size=64, learning_rate=1e-2,
                                 logging_steps=20, save_strategy="no", report_to=[], use_cpu=True, disable_tqdm=True)
        trainer = Trainer(model=model, args=args, train_dataset=Parity(x_train, y_train))
        trainer.train()  # OTHER
    print(f"after stage 2: accuracy of head A {accuracy_a(model, x_val, y_val):.3f}")


if __name__ == "__main__":
    main()
