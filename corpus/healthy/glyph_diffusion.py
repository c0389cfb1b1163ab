"""Trains a small convolutional denoiser on digit images and previews it with averaged weights; healthy.

The averaged weights, BatchNorm buffers included, are loaded for every preview and the training weights put back after it; the cosine
schedule ends at zero and the optimizer is resumed from a checkpoint half way.
"""
import copy
import os
import tempfile

import torch
import torch.nn as nn
from sklearn.datasets import load_digits

EXPECT = {"framework": "plain", "kind": None, "set": "nineteenth", "written": "2026-11-27"}


class Denoiser(nn.Module):
    def __init__(self, ch=24):
        super().__init__()
        self.inp = nn.Conv2d(2, ch, 3, padding=1)
        self.mid = nn.Sequential(nn.BatchNorm2d(ch), nn.ReLU(), nn.Conv2d(ch, ch, 3, padding=1), nn.BatchNorm2d(ch), nn.ReLU(),
                                 nn.Conv2d(ch, ch, 3, padding=1))
        self.out = nn.Conv2d(ch, 1, 3, padding=1)

    def forward(self, x, sigma):
        h = self.inp(torch.cat([x, sigma.expand_as(x)], 1))
        return self.out(torch.relu(h + self.mid(h)))


class WeightAverage:
    def __init__(self, model, decay=0.95):
        self.decay = decay
        self.state = copy.deepcopy(model.state_dict())

    @torch.no_grad()
    def update(self, model):
        for k, v in model.state_dict().items():
            if v.is_floating_point():
                self.state[k].lerp_(v, 1 - self.decay)
            else:
                self.state[k].copy_(v)


def build(total):
    model = Denoiser()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    return model, optimizer, torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, total)


def noisy(x):
    sigma = torch.rand(len(x), 1, 1, 1) * 0.9 + 0.1
    return x + sigma * torch.randn_like(x), sigma


def preview(model, average, x):
    kept = copy.deepcopy(model.state_dict())
    model.load_state_dict(average.state)
    model.eval()
    with torch.no_grad():
        xt, sigma = noisy(x)
        error = (model(xt, sigma) - x).pow(2).mean().item()
    model.load_state_dict(kept)
    model.train()
    return error


def main():
    torch.manual_seed(0)
    x = torch.tensor(load_digits().images, dtype=torch.float32)[:, None] / 8 - 1
    train, held = x[:1500], x[1500:]
    total = 200
    model, optimizer, scheduler = build(total)
    average = WeightAverage(model)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "half.pt")
        for step in range(total):
            clean = train[torch.randint(0, len(train), (48,))]
            xt, sigma = noisy(clean)
            loss = (model(xt, sigma) - clean).pow(2).mean()
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            average.update(model)
            if (step + 1) % 40 == 0:
                print(f"step {step + 1} loss {loss.item():.4f} preview error {preview(model, average, held):.4f}")
            if step + 1 == total // 2:
                torch.save({"model": model.state_dict(), "opt": optimizer.state_dict(), "sched": scheduler.state_dict()}, path)
                model, optimizer, scheduler = build(total)
                saved = torch.load(path)
                model.load_state_dict(saved["model"])
                optimizer.load_state_dict(saved["opt"])
                scheduler.load_state_dict(saved["sched"])
    print("last learning rate", scheduler.get_last_lr()[0])


if __name__ == "__main__":
    main()
