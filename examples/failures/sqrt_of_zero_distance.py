"""Siamese/contrastive loss: euclidean distance by sqrt(sum(square)), a pair holds the same image twice."""

import torch
from torch import nn

EXPECT = {"kind": "nonfinite-backward", "line": ("cause", "CULPRIT")}


class Embedder(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(10, 16), nn.PReLU(), nn.Linear(16, 2))

    def forward(self, a, b):
        return self.net(a), self.net(b)


class ContrastiveLoss(nn.Module):
    def __init__(self, margin=1.0):
        super().__init__()
        self.margin = margin

    def forward(self, za, zb, same):
        squared = (za - zb).pow(2).sum(1)
        dist = squared.sqrt()  # CULPRIT
        return (same * squared + (1 - same) * torch.relu(self.margin - dist).pow(2)).mean()


def train():
    torch.manual_seed(0)
    model, criterion = Embedder(), ContrastiveLoss()
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    for step in range(4):
        a, b = torch.randn(8, 10), torch.randn(8, 10)
        same = torch.zeros(8)
        if step == 2:
            b[3], same[3] = a[3], 1
        loss = criterion(*model(a, b), same)
        opt.zero_grad()
        loss.backward()
        opt.step()
    return {"reproduced": any(p.isnan().any().item() for p in model.parameters())}


if __name__ == "__main__":
    print(train())
