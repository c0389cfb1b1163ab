"""Rotary embedding with learned frequencies: the first result is cached, the second iteration walks a freed graph.

Report: https://github.com/lucidrains/rotary-embedding-torch/issues/18
"""
import torch
from torch import nn

EXPECT = {
    "class": "second-backward", "kind": "second-backward", "bridge_marker": "REUSED",
    "set": "first", "written": "2026-11-22",
}


class Rotary(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.freqs = nn.Parameter(1.0 / 10000 ** (torch.arange(0, dim, 2) / dim))
        self.cache = None

    def forward(self, n):
        if self.cache is not None and n <= self.cache.shape[0]:
            return self.cache[:n]  # REUSED
        t = torch.arange(n, dtype=torch.float32)
        freqs = torch.outer(t, self.freqs).repeat_interleave(2, 1)
        self.cache = freqs
        return freqs


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.rotary, self.qk, self.v, self.out = Rotary(8), nn.Linear(8, 16), nn.Linear(8, 8), nn.Linear(8, 4)

    def forward(self, x):
        f = self.rotary(x.shape[1])
        q, k = self.qk(x).chunk(2, -1)
        turn = lambda z: z * f.cos() + torch.stack([-z[..., 1::2], z[..., ::2]], -1).flatten(-2) * f.sin()
        att = (turn(q) @ turn(k).transpose(1, 2) / 8**0.5).softmax(-1)
        return self.out(att @ self.v(x)).mean(1)


torch.manual_seed(0)
model = Attention()
opt = torch.optim.Adam(model.parameters(), 1e-3)
for step in range(12):
    n = step + 4 if step < 8 else 9  # lengths grow, then one repeats
    loss = nn.functional.cross_entropy(model(torch.randn(4, n, 8)), torch.randint(0, 4, (4,)))
    opt.zero_grad()
    loss.backward()
    opt.step()
