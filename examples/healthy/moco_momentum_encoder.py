"""Healthy: MoCo with a momentum encoder (in the same module), a queue buffer, no gradient to the key encoder."""

import torch
import torch.nn.functional as F
from torch import nn

EXPECT = {"kind": None}


class MoCo(nn.Module):
    def __init__(self, dim=8, K=32, m=0.99, T=0.2):
        super().__init__()
        self.K, self.m, self.T = K, m, T
        self.encoder_q = nn.Sequential(nn.Linear(12, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, dim))
        self.encoder_k = nn.Sequential(nn.Linear(12, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, dim))
        for q, k in zip(self.encoder_q.parameters(), self.encoder_k.parameters()):
            k.data.copy_(q.data)
            k.requires_grad = False
        self.register_buffer("queue", F.normalize(torch.randn(dim, K), dim=0))
        self.register_buffer("ptr", torch.zeros(1, dtype=torch.long))

    @torch.no_grad()
    def enqueue(self, keys):
        i = int(self.ptr)
        self.queue[:, i : i + len(keys)] = keys.t()
        self.ptr[0] = (i + len(keys)) % self.K

    def forward(self, a, b):
        q = F.normalize(self.encoder_q(a), dim=1)
        with torch.no_grad():
            for pq, pk in zip(self.encoder_q.parameters(), self.encoder_k.parameters()):
                pk.data = pk.data * self.m + pq.data * (1 - self.m)
            k = F.normalize(self.encoder_k(b), dim=1)
        pos = (q * k).sum(1, keepdim=True)
        neg = q @ self.queue.clone().detach()
        logits = torch.cat([pos, neg], 1) / self.T
        self.enqueue(k)
        return logits, torch.zeros(len(a), dtype=torch.long)


torch.manual_seed(0)
model = MoCo()
opt = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4)
for _ in range(8):
    x = torch.randn(8, 12)
    logits, labels = model(x + 0.1 * torch.randn_like(x), x + 0.1 * torch.randn_like(x))
    loss = F.cross_entropy(logits, labels)
    opt.zero_grad()
    loss.backward()
    opt.step()
print(loss.item())
