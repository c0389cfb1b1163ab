"""Healthy: gradients are cleared at the start of each group; a probe saves and restores them."""
import torch
import torch.nn.functional as F
from torch import nn

EXPECT = {
    "kind": None,
    "set": "eighteen_classes",
    "written": "2026-11-29",
}


torch.manual_seed(21)
ACCUM = 4
PROBE_EVERY = 10


class OrderNet(nn.Module):
    def __init__(self, shops=6):
        super().__init__()
        self.shop = nn.Embedding(shops, 8)
        self.net = nn.Sequential(nn.Linear(8 + 3, 40), nn.SiLU(), nn.Linear(40, 40), nn.SiLU(), nn.Linear(40, 1))

    def forward(self, shop, x):
        return self.net(torch.cat([self.shop(shop), x], -1)).squeeze(-1)


def batch_of(shop, n, gen):
    x = torch.randn(n, 3, generator=gen)
    s = torch.full((n,), shop, dtype=torch.long)
    y = torch.sin(x[:, 0] + shop) + 0.5 * x[:, 1] * (shop - 2.5) + x[:, 2].abs()
    return s, x, y


def gradient_noise(model, optimizer, gen):
    kept = [None if p.grad is None else p.grad.clone() for p in model.parameters()]
    norms = []
    for shop in (0, 3):
        optimizer.zero_grad()
        s, x, y = batch_of(shop, 16, gen)
        F.mse_loss(model(s, x), y).backward()
        norms.append(sum(p.grad.pow(2).sum() for p in model.parameters() if p.grad is not None).sqrt().item())
    for p, g in zip(model.parameters(), kept):
        p.grad = g
    return norms


def train():
    gen = torch.Generator().manual_seed(2)
    probe_gen = torch.Generator().manual_seed(3)
    model = OrderNet()
    optimizer = torch.optim.Adam(model.parameters(), lr=4e-3)
    micro = 0
    running = 0.0
    for update in range(350):
        for k in range(ACCUM):
            if k == 0:
                optimizer.zero_grad()
            s, x, y = batch_of(micro % 6, 24, gen)
            loss = F.mse_loss(model(s, x), y) / ACCUM
            loss.backward()
            running += loss.item()
            micro += 1
            if k == 2 and update % PROBE_EVERY == 0:
                norms = gradient_noise(model, optimizer, probe_gen)
        optimizer.step()
        if (update + 1) % 50 == 0:
            print(f"update {update + 1:4d} mse {running / 50:.4f} probe norms {norms[0]:.2f} {norms[1]:.2f}")
            running = 0.0
    with torch.no_grad():
        errs = []
        for shop in range(6):
            s, x, y = batch_of(shop, 400, gen)
            errs.append(F.mse_loss(model(s, x), y).item())
    print("final test mse per shop", [round(e, 3) for e in errs])


if __name__ == "__main__":
    train()
