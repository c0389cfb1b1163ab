"""Spotting odd card payments with a small network under mixed precision with a gradient scaler.

Follows the public report https://kaijuan.co/qa/54716377 (the order of unscaling and clipping)
"""
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

EXPECT = {
    "kind": "clipping-without-effect",
    "line": ("cause", "cause"),
    "plain": "the loss stays where it began, epoch after epoch, without any error",
    "set": "twentyfourth",
    "written": "2026-11-28",
}


def payments(n, seed):
    rng = np.random.default_rng(seed)
    amount = rng.lognormal(3.0, 1.0, n)
    hour = rng.uniform(0, 24, n)
    distance = rng.exponential(20.0, n)
    shop = rng.integers(0, 12, n)
    known = rng.random(n) < 0.7
    score = 0.8 * (np.log(amount) - 3) + 0.03 * distance + 1.2 * ((hour < 5) | (hour > 23)) - 1.5 * known
    score += np.where(np.isin(shop, [2, 7, 9]), 1.4, -0.3) - 0.2
    label = score + rng.logistic(0, 0.4, n) > 0
    plain = np.stack([np.log(amount) - 3, np.sin(hour / 24 * 2 * np.pi), np.cos(hour / 24 * 2 * np.pi),
                      distance / 20 - 1, known.astype(float)], 1)
    return TensorDataset(torch.tensor(plain, dtype=torch.float32), torch.from_numpy(shop),
                         torch.tensor(label, dtype=torch.float32))


class Watcher(nn.Module):
    def __init__(self):
        super().__init__()
        self.shop = nn.Embedding(12, 6)
        self.layers = nn.Sequential(nn.Linear(11, 64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 1))

    def forward(self, plain, shop):
        return self.layers(torch.cat([plain, self.shop(shop)], dim=1)).squeeze(1)


class Loop:
    def __init__(self, model, rate, norm):
        self.model, self.norm = model, norm
        self.optimizer = torch.optim.SGD(model.parameters(), lr=rate, momentum=0.9)
        self.scaler = torch.amp.GradScaler("cpu")
        self.criterion = nn.BCEWithLogitsLoss()

    def step(self, plain, shop, label):
        self.optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            logits = self.model(plain, shop)
        loss = self.criterion(logits.float(), label)
        self.scaler.scale(loss).backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), self.norm)  # <-- cause
        self.scaler.step(self.optimizer)
        self.scaler.update()
        return loss.item()

    @torch.no_grad()
    def accuracy(self, rows):
        plain, shop, label = rows.tensors
        return ((self.model(plain, shop) > 0).float() == label).float().mean().item()


def main():
    torch.manual_seed(8)
    torch.set_num_threads(1)
    train, held_out = payments(6000, 1), payments(2000, 2)
    loader = DataLoader(train, batch_size=64, shuffle=True)
    loop = Loop(Watcher(), rate=0.05, norm=1.0)
    print(f"share of odd payments {train.tensors[2].mean():.3f}")
    for epoch in range(6):
        losses = [loop.step(*batch) for batch in loader]
        print(f"epoch {epoch}: loss {sum(losses) / len(losses):.4f}  accuracy {loop.accuracy(held_out):.3f}")


if __name__ == "__main__":
    main()
