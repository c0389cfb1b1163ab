"""Momentum contrast: the queue is used without a copy and the new keys are written before backward.

Report: https://github.com/facebookresearch/fairseq/issues/251 (a slice assigned between forward and backward), setting of facebookresearch/moco
"""
import torch
from torch import nn

EXPECT = {"class": "inplace", "kind": "inplace", "mutating_marker": "MUTATES", "set": "first", "written": "2026-11-22"}


class MoCo(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.k = nn.Linear(8, 4), nn.Linear(8, 4)
        self.register_buffer("queue", nn.functional.normalize(torch.randn(4, 32), dim=0))
        self.ptr = 0

    @torch.no_grad()
    def enqueue(self, keys):
        n = keys.shape[0]
        self.queue[:, self.ptr : self.ptr + n] = keys.t()  # MUTATES
        self.ptr = (self.ptr + n) % 32

    def forward(self, x, warm):
        q = nn.functional.normalize(self.q(x), dim=1)
        with torch.no_grad():
            for a, b in zip(self.q.parameters(), self.k.parameters()):
                b.lerp_(a, 0.01)
            k = nn.functional.normalize(self.k(x + 0.1 * torch.randn_like(x)), dim=1)
        positive = (q * k).sum(1, keepdim=True)
        negative = q @ self.queue.clone() if warm else q @ self.queue
        self.enqueue(k)
        return torch.cat([positive, negative], 1) / 0.2


torch.manual_seed(0)
moco = MoCo()
opt = torch.optim.SGD(moco.q.parameters(), 1e-2)
for step in range(30):
    logits = moco(torch.randn(8, 8), warm=step < 20)
    loss = nn.functional.cross_entropy(logits, torch.zeros(8, dtype=torch.long))
    opt.zero_grad()
    loss.backward()
    opt.step()
