"""CRF-like recursion: the start state is -inf by torch.full, forward finite, logsumexp's backward makes NaN."""

import torch
from torch import nn

EXPECT = {"kind": "nonfinite-backward", "line": ("cause", "CULPRIT")}


class Lattice(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.trans = nn.Parameter(torch.zeros(n, n))

    def forward(self, em):
        T, n = em.shape
        a = torch.full((n,), float("-inf"))
        a[0] = 0.0
        blocked = torch.ones(n, n).tril(-1).bool()
        for t in range(T):
            m = (a[:, None] + self.trans).masked_fill(blocked | (torch.arange(n) > t)[None], float("-inf"))
            a = torch.logsumexp(m, 0) + em[t]  # CULPRIT
        return -torch.logsumexp(a, 0)


torch.manual_seed(0)
enc, lat = nn.Linear(3, 4), Lattice(4)
opt = torch.optim.SGD([*enc.parameters(), *lat.parameters()], 0.1)
for _ in range(3):
    loss = lat(enc(torch.randn(6, 3)))
    opt.zero_grad()
    loss.backward()
    opt.step()
