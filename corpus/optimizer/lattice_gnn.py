"""Trains a four-layer message passing network on random graphs; all four layers are one and the same, so it can learn only one of them.
Report: https://github.com/zalandoresearch/pytorch-vq-vae/issues/2 (nn.ModuleList([Residual(...)] * n) repeats a reference to a single
instance; the maintainer: it is a bug)
Effect: few parameters, every weight gets the sum of four rounds' gradients, the held out error ends at 0.29 (0.14 in the mended copy).
"""
import torch
from torch import nn
from torch.nn import functional as F

EXPECT = {
    "framework": "plain", "kind": "module-repeated", "line": ("cause", "CAUSE"),
    "what": "the list is built as [layer] * depth, so all rounds share one set of weights; build a new layer for each round",
    "set": "twentieth", "written": "2026-11-27",
}


def random_graphs(n, nodes, gen):
    upper = (torch.rand(n, nodes, nodes, generator=gen) < 0.25).float().triu(1)
    adj = upper + upper.transpose(1, 2) + torch.eye(nodes)
    return adj / adj.sum(-1, keepdim=True)


def simulate(adj, x, gen, width=8, rounds=4):
    """The measured signal: unlike exchange rounds, mixing within a node and then between neighbours."""
    h = x
    for r in range(rounds):
        w = torch.linalg.qr(torch.randn(width, width, generator=gen))[0]
        h = torch.tanh(1.4 * h @ w) if r % 2 else (h - 0.9 * adj @ h) @ w
    return h


class Round(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.own = nn.Linear(width, width)
        self.neighbours = nn.Linear(width, width, bias=False)
        self.norm = nn.LayerNorm(width)

    def forward(self, adj, h):
        return h + F.silu(self.norm(self.own(h) + self.neighbours(adj @ h)))


class GraphNet(nn.Module):
    def __init__(self, inputs=8, width=10, depth=4, outputs=8):
        super().__init__()
        self.embed = nn.Linear(inputs, width)
        self.rounds = nn.ModuleList([Round(width)] * depth)  # CAUSE
        self.readout = nn.Linear(width, outputs)

    def forward(self, adj, x):
        h = self.embed(x)
        for layer in self.rounds:
            h = layer(adj, h)
        return self.readout(h)


def main():
    torch.manual_seed(17)
    gen = torch.Generator().manual_seed(17)
    adj = random_graphs(320, 14, gen)
    x = torch.randn(320, 14, 8, generator=gen)
    y = simulate(adj, x, gen)
    y = (y - y.mean()) / y.std()
    model = GraphNet()
    print("parameters", sum(p.numel() for p in model.parameters()))
    optimizer = torch.optim.AdamW(model.parameters(), lr=6e-3, weight_decay=1e-4)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=300)
    for step in range(300):
        pick = torch.randint(0, 288, (24,))
        loss = F.mse_loss(model(adj[pick], x[pick]), y[pick])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        if (step + 1) % 60 == 0:
            with torch.no_grad():
                held_out = F.mse_loss(model(adj[288:], x[288:]), y[288:])
            print(f"step {step + 1}: train {loss.item():.3f}  held out {held_out.item():.3f}")


if __name__ == "__main__":
    main()
