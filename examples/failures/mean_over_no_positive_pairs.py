"""Triplet loss averaged over the active triplets only: their number becomes zero."""

import torch
from torch import nn

EXPECT = {"kind": "nonfinite-forward", "line": ("cause", "CULPRIT")}


class TripletLoss:
    def __init__(self, margin):
        self.margin = margin

    def __call__(self, anchor, positive, negative):
        dp = nn.functional.pairwise_distance(anchor, positive)
        dn = nn.functional.pairwise_distance(anchor, negative)
        loss = torch.relu(dp - dn + self.margin)
        active = (loss > 0).float()
        return loss.sum() / active.sum()  # CULPRIT


def main():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 4))
    criterion = TripletLoss(0.01)
    opt = torch.optim.Adam(net.parameters(), lr=1e-3)
    history = []
    for step in range(6):
        a = torch.randn(4, 8)
        p = a + 0.1 * torch.randn(4, 8)
        n = torch.randn(4, 8) if step < 3 else a + 20
        loss = criterion(net(a), net(p), net(n))
        opt.zero_grad()
        loss.backward()
        opt.step()
        history.append(loss.item())
    return {"reproduced": history[-1] != history[-1], "history": history}


if __name__ == "__main__":
    print(main())
