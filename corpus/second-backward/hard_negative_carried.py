"""Metric learning from a DataLoader: the embedding of a very hard sample is kept for the next batch, together with its graph."""
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

EXPECT = {
    "class": "late-second-backward", "kind": "second-backward", "bridge_marker": "REUSED", "step": 476,
    "set": "late", "written": "2026-11-22",
}


class Pairs(nn.Module):
    def __init__(self, temperature=0.2, limit=4.0):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(10, 24), nn.ReLU(), nn.Linear(24, 8))
        self.temperature, self.limit, self.hard = temperature, limit, None

    def forward(self, a, b):
        za, zb = (nn.functional.normalize(self.encoder(x)) for x in (a, b))
        candidates = zb
        if self.hard is not None:
            candidates = torch.cat([zb, self.hard])  # REUSED
        logits = za @ candidates.t() / self.temperature
        each = nn.functional.cross_entropy(logits, torch.arange(len(za)), reduction="none")
        worst = each.argmax()
        self.hard = zb[worst : worst + 1] if each[worst] > self.limit else None
        return each.mean()


torch.manual_seed(0)
g = torch.Generator().manual_seed(0)
first = torch.randn(7200, 10, generator=g)
second = first + 0.3 * torch.randn(7200, 10, generator=g)
second[3333] = -first[3333]
loader = DataLoader(TensorDataset(first, second), batch_size=12, shuffle=True, generator=g)
model = Pairs()
opt = torch.optim.Adam(model.parameters(), 2e-3)
for epoch in range(2):
    for step, (a, b) in enumerate(loader):
        loss = model(a, b)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 100 == 0:
            print(epoch, step, round(loss.item(), 4))
