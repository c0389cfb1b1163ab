"""Speech transformer with its own attention: an utterance of length zero masks all of its keys with -inf, and the softmax of nothing is NaN.

Report: https://github.com/sooftware/kospeech/issues/37 (loss becomes nan; also dmlc/dgl issue 2657)
"""
import torch
from torch import nn

EXPECT = {
    "class": "masked-softmax", "kind": "nonfinite-forward-poisons-backward", "source_marker": "CULPRIT", "module": "attention",
    "set": "fourth", "written": "2026-11-22",
}


class Attention(nn.Module):
    def __init__(self, dim=12):
        super().__init__()
        self.q, self.k, self.v = nn.Linear(dim, dim), nn.Linear(dim, dim), nn.Linear(dim, dim)

    def forward(self, x, padding):
        scores = self.q(x) @ self.k(x).transpose(1, 2) / x.shape[-1] ** 0.5
        weights = scores.masked_fill(padding[:, None], -torch.inf).softmax(-1)  # CULPRIT
        return weights @ self.v(x)


class Recogniser(nn.Module):
    def __init__(self, bands=8, dim=12, words=6):
        super().__init__()
        self.inp, self.attention, self.norm, self.out = nn.Linear(bands, dim), Attention(dim), nn.LayerNorm(dim), nn.Linear(dim, words)

    def forward(self, x, padding):
        h = self.inp(x)
        return self.out(self.norm(h + self.attention(h, padding))).mean(1)


torch.manual_seed(0)
model = Recogniser()
opt = torch.optim.Adam(model.parameters(), 1e-3)
for step in range(30):
    word = torch.randint(0, 6, (8,))
    lengths = torch.randint(2, 11, (8,))
    if step == 12:
        lengths[5] = 0
    padding = torch.arange(10)[None] >= lengths[:, None]
    x = torch.randn(8, 10, 8) + word[:, None, None]
    loss = nn.functional.cross_entropy(model(x, padding), word)
    opt.zero_grad()
    loss.backward()
    opt.step()
print(loss.item())
