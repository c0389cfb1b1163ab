"""Masked-token transformer encoder with a metric meter; extra metrics in the late phase."""
import time
from collections import defaultdict
import torch
import torch.nn as nn
import torch.nn.functional as F

EXPECT = {
    "class": "late-retained", "kind": "graph-retained", "holding_marker": "CULPRIT", "step": 140,
    "set": "late_longer", "written": "2026-11-25",
}

torch.manual_seed(14)
V, T, B, MASK = 96, 24, 24, 95


class Encoder(nn.Module):
    def __init__(self, dim=96, layers=2):
        super().__init__()
        self.emb = nn.Embedding(V, dim)
        self.pos = nn.Parameter(torch.randn(T, dim) * 0.02)
        layer = nn.TransformerEncoderLayer(dim, 4, 2 * dim, dropout=0.1, batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.out = nn.Linear(dim, V)

    def forward(self, x):
        return self.out(self.layers(self.emb(x) + self.pos))


class Meter:
    def __init__(self):
        self.total, self.count = defaultdict(float), defaultdict(int)

    def update(self, **values):
        for k, v in values.items():
            self.total[k] += v  # CULPRIT
            self.count[k] += 1

    def report(self):
        return {k: round(float(self.total[k]) / self.count[k], 4) for k in self.total}


def batch():
    start = torch.randint(0, V - 1, (B, 1))
    stride = torch.randint(1, 5, (B, 1))
    seq = (start + stride * torch.arange(T)) % (V - 1)
    hide = torch.rand(B, T) < 0.2
    return seq.masked_fill(hide, MASK), seq, hide


def prediction_entropy(logits):
    logp = logits.log_softmax(-1)
    return -(logp.exp() * logp).sum(-1).mean()


def train(steps=380, detailed_from=140):
    model, meter = Encoder(), Meter()
    opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
    t0 = time.time()
    for step in range(steps):
        x, y, hide = batch()
        logits = model(x)
        loss = F.cross_entropy(logits[hide], y[hide])
        opt.zero_grad()
        loss.backward()
        opt.step()
        meter.update(loss=loss.item())
        if step >= detailed_from:
            meter.update(entropy=prediction_entropy(logits))
        if step % 50 == 49:
            print(step, meter.report(), f"{(time.time() - t0) / (step + 1) * 1e3:.1f} ms/step")


train()
