"""Two tower retrieval model trained with accelerate, with a probe set for drift plots.

Story: from step 150 on the score of a fixed probe set is kept after every step to plot the
drift at the end.  Memory of the job climbs from then on until the node kills it.
Based on public reports: TRI-ML/packnet-sfm#47 ("outputs hold the output['loss'] in all the
epoch"), BatsResearch/labelmodels#4 and pai4451/ML2021#2.
"""
from dataclasses import dataclass

import torch
from accelerate import Accelerator
from torch import nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

EXPECT = {
    "class": "x", "kind": "graph-retained", "holding_marker": "HOLD", "plain": {"outcome": "silent"},
    "set": "fourteenth", "written": "2026-11-26",
}


@dataclass
class Config:
    users: int = 400
    items: int = 300
    dim: int = 32
    batch: int = 128
    epochs: int = 8
    probe_from: int = 150
    lr: float = 3e-3


class Tower(nn.Module):
    def __init__(self, count, dim):
        super().__init__()
        self.table = nn.Embedding(count, dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 2 * dim), nn.ReLU(), nn.Linear(2 * dim, dim))

    def forward(self, ids):
        return F.normalize(self.mlp(self.table(ids)), dim=-1)


class TwoTower(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.user = Tower(cfg.users, cfg.dim)
        self.item = Tower(cfg.items, cfg.dim)
        self.log_scale = nn.Parameter(torch.tensor(2.0))

    def forward(self, users, items):
        logits = self.user(users) @ self.item(items).t() * self.log_scale.exp()
        return F.cross_entropy(logits, torch.arange(len(users)))


class DriftProbe:
    """Keeps how well the model ranks a fixed set of pairs over time."""

    def __init__(self, users, items):
        self.users, self.items = users, items
        self.curve = []

    def record(self, model):
        score = model(self.users, self.items)
        self.curve.append(score)  # HOLD

    def summary(self):
        if len(self.curve) < 2:
            return "no curve yet"
        return f"{len(self.curve)} points, from {self.curve[0]:.3f} to {self.curve[-1]:.3f}"


def make_clicks(cfg, count=6000):
    g = torch.Generator().manual_seed(4)
    taste = torch.randint(20, (cfg.users,), generator=g)
    users = torch.randint(cfg.users, (count,), generator=g)
    genre = taste[users]
    items = (genre * 15 + torch.randint(15, (count,), generator=g)) % cfg.items
    return users, items


def main():
    torch.manual_seed(0)
    cfg = Config()
    accelerator = Accelerator(cpu=True)
    users, items = make_clicks(cfg)
    probe = DriftProbe(users[-128:], items[-128:])
    loader = DataLoader(TensorDataset(users[:-128], items[:-128]), batch_size=cfg.batch, shuffle=True, drop_last=True)
    model = TwoTower(cfg)
    optimizer = torch.optim.Adam(model.parameters(), lr=cfg.lr)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    step = 0
    for epoch in range(cfg.epochs):
        running = 0.0
        for user_ids, item_ids in loader:
            loss = model(user_ids, item_ids)
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            running += loss.item()
            step += 1
            if step >= cfg.probe_from:
                probe.record(model)
        accelerator.print(f"epoch {epoch} loss {running / len(loader):.3f} probe: {probe.summary()}")


if __name__ == "__main__":
    main()
