"""EvolveGCN-style network over graph snapshots; the evolved weight is kept on the module between epochs with its history, so the second backward() fails.

Report: https://github.com/benedekrozemberczki/pytorch_geometric_temporal/issues/297 (the evolvegcnh example stops with "Trying to backward through the graph a second time"; others get it in evolvegcno too)
"""
import torch
import torch.nn as nn
import torch.nn.functional as F

EXPECT = {
    "framework": "plain", "kind": "second-backward", "line": ("reused", "CAUSE"),
    "what": "the evolved weight matrix stays in self.weight with its graph and the next epoch starts from it, so backward() runs into the freed graph of the previous epoch; reset (or detach) it at the start of every epoch",
    "set": "nineteenth", "written": "2026-11-27",
}


def make_snapshots(n_nodes=30, n_steps=12, feats=8):
    gen = torch.Generator().manual_seed(11)
    adj = (torch.rand(n_nodes, n_nodes, generator=gen) < 0.15).float()
    adj = ((adj + adj.t()) > 0).float()
    snapshots = []
    signal = torch.randn(n_nodes, feats, generator=gen)
    for _ in range(n_steps):
        drop = (torch.rand(n_nodes, n_nodes, generator=gen) > 0.1).float()
        a = adj * drop * drop.t() + torch.eye(n_nodes)
        d = a.sum(1).rsqrt()
        a_norm = d[:, None] * a * d[None, :]
        nxt = 0.9 * a_norm @ signal + 0.1 * torch.randn(n_nodes, feats, generator=gen)
        snapshots.append((a_norm, signal, nxt.mean(dim=1)))
        signal = nxt
    return snapshots


class EvolveGCNO(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.initial_weight = nn.Parameter(torch.empty(channels, channels))
        nn.init.xavier_uniform_(self.initial_weight)
        self.gru = nn.GRUCell(channels, channels)
        self.weight = None

    def forward(self, a, x):
        w = self.initial_weight if self.weight is None else self.weight  # USE
        self.weight = self.gru(w, w)  # CAUSE
        return a @ x @ self.weight


class RecurrentGCN(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv = EvolveGCNO(channels)
        self.linear = nn.Linear(channels, 1)

    def forward(self, a, x):
        h = F.relu(self.conv(a, x))
        return self.linear(h).squeeze(-1)


def main():
    torch.manual_seed(0)
    snapshots = make_snapshots()
    model = RecurrentGCN(8)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    model.train()
    for epoch in range(150):  # RESET
        cost = 0.0
        for a, x, y in snapshots[:9]:
            cost = cost + F.mse_loss(model(a, x), y)
        cost = cost / 9
        cost.backward()
        optimizer.step()
        optimizer.zero_grad()
        if epoch % 25 == 0:
            print(f"epoch {epoch:3d}  train mse {cost.item():.4f}")
    model.eval()
    with torch.no_grad():
        test = sum(F.mse_loss(model(a, x), y).item() for a, x, y in snapshots[9:]) / 3
    print(f"test mse {test:.4f}")


if __name__ == "__main__":
    main()
