"""Embeddings scaled to length one by rsqrt, whose value is bounded afterwards: a user without any history has the zero vector, and the bound does not reach the derivative.

Report: https://github.com/keras-team/keras/issues/23075 (normalize gives NaN gradients for zero vectors on the torch backend)
"""
import torch
from torch import nn

EXPECT = {
    "class": "late-nonfinite", "kind": "nonfinite-backward", "source_marker": "CULPRIT", "step": 254,
    "set": "fourth", "written": "2026-11-22",
}


def normalize(x, epsilon=1e-12):
    square_sum = x.square().sum(-1, keepdim=True)
    inverse = torch.rsqrt(square_sum)  # CULPRIT
    return x * torch.minimum(inverse, torch.full_like(inverse, 1.0 / epsilon))


class Recommender(nn.Module):
    def __init__(self, items=30, dim=8):
        super().__init__()
        self.items, self.query = nn.Embedding(items, dim), nn.Linear(dim, dim, bias=False)

    def forward(self, history, lengths, target):
        mask = torch.arange(history.shape[1])[None] < lengths[:, None]
        user = (self.items(history) * mask[..., None]).sum(1)
        return normalize(self.query(user)) @ normalize(self.items.weight).t()


torch.manual_seed(0)
model = Recommender()
opt = torch.optim.Adagrad(model.parameters(), 0.05)
for step in range(330):
    target = torch.randint(0, 30, (16,))
    history = (target[:, None] + torch.randint(-2, 3, (16, 5))) % 30
    lengths = torch.randint(1, 6, (16,))
    if step == 254:
        lengths[7] = 0  # new user
    loss = nn.functional.cross_entropy(5 * model(history, lengths, target), target)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 50 == 0:
        print(step, round(loss.item(), 4))
