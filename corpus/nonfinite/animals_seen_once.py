"""Re-identification of animals with a supervised contrastive loss: batches hold several pictures of each individual, until the new season brings individuals that were seen a single time and have no positive at all.

Report: https://github.com/HobbitLong/SupContrast/issues/141 (the loss is NaN for an anchor without a positive pair; issue 50 of the same repository: mask.sum(1) is zero)
"""
import torch
from torch import nn
from torch.nn import functional as F

EXPECT = {
    "class": "late-nonfinite", "kind": "nonfinite-forward-poisons-backward", "source_marker": "CULPRIT", "step": 60,
    "set": "tenth", "written": "2026-11-23",
}


class Catalogue:
    """Pictures of animals: what an individual looks like, seen from some side."""

    def __init__(self, individuals=40, size=24):
        self.coat = torch.randn(individuals, size)
        self.mix = torch.randn(3, size, size) / size**0.5

    def picture(self, ids):
        side = torch.randint(0, 3, (len(ids),))
        return torch.tanh(torch.einsum("ni,nij->nj", self.coat[ids], self.mix[side])) + 0.05 * torch.randn(len(ids), self.coat.shape[1])

    def season(self, known=10, each=4, once=0):
        ids = torch.randperm(30)[:known].repeat_interleave(each)
        ids = torch.cat([ids, 30 + torch.randperm(10)[:once]])
        return self.picture(ids), ids


class SupConLoss(nn.Module):
    def __init__(self, temperature=0.2):
        super().__init__()
        self.temperature = temperature

    def forward(self, features, labels):
        n = len(labels)
        others = 1 - torch.eye(n)
        mask = (labels[:, None] == labels).float() * others
        logits = features @ features.T / self.temperature
        logits = logits - logits.max(1, keepdim=True).values.detach()
        log_prob = logits - torch.log((torch.exp(logits) * others).sum(1, keepdim=True))
        mean_log_prob_pos = (mask * log_prob).sum(1) / mask.sum(1)  # CULPRIT
        return -mean_log_prob_pos.mean()


class Encoder(nn.Module):
    def __init__(self, size=24, width=64, dim=16):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(size, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU())
        self.projection = nn.Linear(width, dim)

    def forward(self, x):
        return F.normalize(self.projection(self.body(x)))


torch.manual_seed(0)
catalogue, encoder, criterion = Catalogue(), Encoder(), SupConLoss()
optimizer = torch.optim.SGD(encoder.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
for step in range(100):
    pictures, ids = catalogue.season(once=0 if step < 60 else 3)
    loss = criterion(encoder(pictures), ids)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 10 == 0 or 59 <= step <= 61:
        print(step, loss.item())
