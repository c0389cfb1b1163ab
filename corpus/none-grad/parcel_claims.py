"""Claims about parcels: probability of loss for all, amount of damage where there is one; DDP with gloo, one process.

Raises after some time in the forward call.
Follows https://github.com/pytorch/pytorch/issues/43259 and https://github.com/Megvii-BaseDetection/YOLOX/issues/885
"""
import os
import tempfile

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

EXPECT = {
    "kind": "none-grad",
    "line": ("wrapped", "HERE"),
    "plain": "RuntimeError: Expected to have finished reduction in the prior iteration before starting a new one, after some steps",
    "set": "twentyfifth",
    "written": "2026-11-28",
}


class Parcels(Dataset):
    def __init__(self, n, seed):
        rng = np.random.default_rng(seed)
        self.x = rng.normal(size=(n, 10)).astype("float32")
        risk = 1 / (1 + np.exp(1.6 - self.x[:, 0] - 0.8 * self.x[:, 1] * self.x[:, 2]))
        self.damaged = rng.random(n) < risk
        amount = 1.5 + 0.7 * self.x[:, 3] - 0.5 * np.abs(self.x[:, 4]) + 0.1 * rng.normal(size=n)
        self.amount = np.where(self.damaged, amount, 0.0).astype("float32")

    def __len__(self):
        return len(self.amount)

    def __getitem__(self, i):
        return self.x[i], np.float32(self.damaged[i]), self.amount[i]


class Claims(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(10, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU())
        self.chance = nn.Linear(width, 1)
        self.amount = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 1))

    def forward(self, x, where):
        h = self.trunk(x)
        chance = self.chance(h).squeeze(-1)
        if where.any():
            return chance, self.amount(h[where]).squeeze(-1)
        return chance, None


def batch_loss(model, x, damaged, amount):
    where = damaged > 0.5
    chance, guess = model(x, where)
    loss = nn.functional.binary_cross_entropy_with_logits(chance, damaged)
    if guess is not None:
        loss = loss + nn.functional.smooth_l1_loss(guess, amount[where])
    return loss


@torch.no_grad()
def held_loss(model, loader):
    model.eval()
    values = [batch_loss(model, *batch).item() for batch in loader]
    model.train()
    return float(np.mean(values))


def main():
    torch.manual_seed(7)
    with tempfile.TemporaryDirectory() as folder:
        dist.init_process_group("gloo", init_method="file://" + os.path.join(folder, "meet"), rank=0, world_size=1)
        model = DistributedDataParallel(Claims())  # HERE
        opt = torch.optim.Adam(model.parameters(), lr=2e-3)
        train = DataLoader(Parcels(4000, 0), batch_size=20, shuffle=True)
        held = DataLoader(Parcels(1000, 1), batch_size=250)
        try:
            for epoch in range(6):
                for step, batch in enumerate(train):
                    loss = batch_loss(model, *batch)
                    opt.zero_grad()
                    loss.backward()
                    opt.step()
                    if step % 50 == 0:
                        print(f"epoch {epoch} step {step} loss {loss.item():.4f}", flush=True)
                print(f"epoch {epoch} held loss {held_loss(model.module, held):.4f}", flush=True)
        finally:
            dist.destroy_process_group()


if __name__ == "__main__":
    main()
