"""Metric learning with a triplet hinge, batches from producer threads, an async main loop.

Right because: late in the run some batches satisfy the margin everywhere, their loss and
gradients are exactly zero and that is the aim; the producers only index tensors (no autograd
in the threads); the async consumer does one ordinary step per batch.  Distances use a
clamp before sqrt so that identical points give no NaN gradient.
"""
import asyncio
import queue
import threading

import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import load_digits

EXPECT = {
    "class": "healthy", "kind": "none", "plain": {"outcome": "silent"},
    "set": "fifteenth", "written": "2026-11-26",
}


class Producer(threading.Thread):
    def __init__(self, x, y, n, out, seed):
        super().__init__(daemon=True)
        self.x, self.y, self.n, self.out = x, y, n, out
        self.gen = torch.Generator().manual_seed(seed)

    def run(self):
        by_class = [torch.nonzero(self.y == c).flatten() for c in range(10)]
        for _ in range(self.n):
            classes = torch.randperm(10, generator=self.gen)[:4]
            idx = torch.cat([by_class[c][torch.randperm(len(by_class[c]), generator=self.gen)[:4]]
                             for c in classes.tolist()])
            noise = 0.03 * torch.randn(len(idx), 64, generator=self.gen)
            self.out.put((self.x[idx] + noise, self.y[idx]))
        self.out.put(None)


async def stream(box, producers):
    loop, open_ = asyncio.get_running_loop(), producers
    while open_:
        item = await loop.run_in_executor(None, box.get)
        if item is None:
            open_ -= 1
        else:
            yield item


def distances(e):
    sq = (e[:, None] - e[None]).pow(2).sum(-1)
    return sq.clamp_min(1e-8).sqrt()


def batch_hard(e, y, margin):
    d = distances(e)
    same = y[:, None] == y[None]
    hardest_pos = d.masked_fill(~same, float("-inf")).amax(1)
    hardest_neg = d.masked_fill(same, float("inf")).amin(1)
    hinge = F.relu(hardest_pos - hardest_neg + margin)
    active = (hinge > 0).sum()
    return hinge.sum() / active.clamp(min=1), active.item()


@torch.no_grad()
def nearest_accuracy(net, x, y):
    e = net(x)
    return (y[:1400][torch.cdist(e[1400:], e[:1400]).argmin(1)] == y[1400:]).float().mean().item()


async def train(net, opt, x, y, steps):
    box = queue.Queue(maxsize=8)
    for s in range(2):
        Producer(x[:1400], y[:1400], steps // 2, box, seed=s).start()
    step = zeros = 0
    recent = []
    async for xb, yb in stream(box, 2):
        loss, active = batch_hard(net(xb), yb, margin=0.1)
        opt.zero_grad()
        loss.backward()
        opt.step()
        zeros += active == 0
        recent = (recent + [loss.item()])[-50:]
        if step % 100 == 0 or step == steps - 1:
            print(f"step {step} loss {sum(recent) / len(recent):.4f} active {active} all-satisfied batches {zeros} "
                  f"1-nn acc {nearest_accuracy(net, x, y):.3f}")
        step += 1
    assert step == steps


class Embedder(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(64, 128), nn.LeakyReLU(0.1), nn.Linear(128, 128), nn.LeakyReLU(0.1),
                                 nn.Linear(128, 16))

    def forward(self, x):
        return F.normalize(self.net(x), dim=-1)


def main():
    torch.manual_seed(0)
    x, y = load_digits(return_X_y=True)
    x, y = torch.tensor(x, dtype=torch.float32) / 16 - 0.3, torch.tensor(y)
    net = Embedder()
    opt = torch.optim.Adam(net.parameters(), lr=1e-3)
    asyncio.run(train(net, opt, x, y, 600))


if __name__ == "__main__":
    main()
