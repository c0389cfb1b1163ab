"""The checkpoint was saved from AveragedModel, so its keys begin with 'module.'; load_state_dict(strict=False) matches
none of them and the frozen encoder stays random.

Report: pytorch/examples#1029 (strict=False silently loads nothing because of a key prefix), simple-HRNet#79
"""
import io

import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

EXPECT = {
    "kind": "checkpoint-not-loaded",
    "line": ("cause", "HERE"),
    "plain": "Test accuracy 0.33 (loss 1.30) against 0.85 (loss 0.45) when the 'module.' prefix is stripped.",
    "set": "twentyseventh",
    "written": "2026-11-29",
}


torch.manual_seed(17)


def kernels():
    d = load_digits()
    x = torch.tensor(d.data, dtype=torch.float32) / 8 - 1
    y = torch.tensor(d.target)
    perm = torch.randperm(len(x))
    return x[perm], y[perm]


class Encoder(nn.Sequential):
    def __init__(self, dim=8):
        super().__init__(
            nn.Linear(64, 96), nn.BatchNorm1d(96), nn.ReLU(),
            nn.Linear(96, 48), nn.ReLU(), nn.Linear(48, dim),
        )


class Sorter(nn.Module):
    def __init__(self, n_out):
        super().__init__()
        self.encoder = Encoder()
        self.head = nn.Linear(8, n_out)

    def forward(self, x):
        return self.head(F.relu(self.encoder(x)))


def pretrain(x, y, steps=350):
    """Ten-way grading on the big sieve; the averaged weights are what we ship."""
    model = Sorter(10)
    ema = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.98), use_buffers=True)
    opt = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for step in range(steps):
        idx = torch.randint(0, len(x), (64,))
        loss = F.cross_entropy(model(x[idx]), y[idx])
        opt.zero_grad()
        loss.backward()
        opt.step()
        ema.update_parameters(model)
    print(f"pretraining loss {loss.item():.3f}")
    buf = io.BytesIO()
    state = {k: v for k, v in ema.state_dict().items() if "head" not in k}
    torch.save({"step": steps, "model": state}, buf)
    buf.seek(0)
    return buf


def finetune(ckpt, x, y, classes):
    model = Sorter(classes)
    blob = torch.load(ckpt, weights_only=True)
    model.load_state_dict(blob["model"], strict=False)  # HERE
    model.encoder.requires_grad_(False)
    opt = torch.optim.Adam(model.head.parameters(), lr=5e-3)
    for step in range(400):
        model.train()
        model.encoder.eval()
        idx = torch.randint(0, len(x), (32,))
        loss = F.cross_entropy(model(x[idx]), y[idx])
        opt.zero_grad()
        loss.backward()
        opt.step()
        if (step + 1) % 100 == 0:
            print(f"finetune {step + 1} loss {loss.item():.3f}")
    return model.eval()


def main():
    x, y = kernels()
    pre, few, test = slice(0, 1200), slice(1200, 1350), slice(1350, None)
    grade = torch.tensor([0, 1, 2, 3, 1, 3, 0, 2, 3, 2])
    ckpt = pretrain(x[pre], y[pre])
    model = finetune(ckpt, x[few], grade[y[few]], 4)
    with torch.no_grad():
        acc = (model(x[test]).argmax(1) == grade[y[test]]).float().mean()
    print(f"test accuracy {acc:.3f}")


if __name__ == "__main__":
    main()
