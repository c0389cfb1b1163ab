"""Texts as bags of words, brought to unit length by an own Function: its forward guards against a zero vector, its backward does not, and one text has no known word."""
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

EXPECT = {
    "class": "late-function", "kind": "nonfinite-backward", "source_marker": "CULPRIT", "module": "unit", "step": 1025,
    "set": "late", "written": "2026-11-22",
}


class UnitRows(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, eps):
        norm = x.norm(dim=1, keepdim=True)
        y = x / norm.clamp(min=eps)
        ctx.save_for_backward(y, norm)
        return y

    @staticmethod
    def backward(ctx, grad):
        y, norm = ctx.saved_tensors
        return (grad - y * (grad * y).sum(1, keepdim=True)) / norm, None


class Unit(nn.Module):
    def forward(self, x):
        return UnitRows.apply(x, 1e-6)  # CULPRIT


class Classifier(nn.Module):
    def __init__(self, words=40):
        super().__init__()
        self.project, self.unit = nn.Linear(words, 12, bias=False), Unit()
        self.topic, self.tone = nn.Linear(12, 4), nn.Linear(12, 1)

    def forward(self, counts):
        z = self.unit(self.project(counts))
        return self.topic(4 * z), self.tone(z)[:, 0]


torch.manual_seed(0)
g = torch.Generator().manual_seed(11)
topics = torch.randint(0, 4, (9600,), generator=g)
profile = 0.02 + torch.rand(4, 40, generator=g).pow(4)
counts = torch.poisson(profile[topics], generator=g)
known = counts.sum(1) > 0
counts, topics = counts[known], topics[known]
tone = counts[:, ::2].sum(1) - counts[:, 1::2].sum(1)
counts[6006, :] = 0  # another language
loader = DataLoader(TensorDataset(counts, topics, tone), batch_size=8, shuffle=True, generator=g)
model = Classifier()
opt = torch.optim.Adam(model.parameters(), 2e-3)
for step, (x, topic, mood) in enumerate(loader):
    logits, value = model(x)
    loss = nn.functional.cross_entropy(logits, topic) + 0.1 * nn.functional.smooth_l1_loss(value, mood)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 100 == 0:
        print(step, round(loss.item(), 4))
