"""A fit whose held-out error is kept in each step; now and then the mean of the last ones is shown."""

import torch
from torch import nn

EXPECT = {"kind": "graph-retained", "line": ("held", "KEEPS")}


def main():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    held = torch.rand(200, 2)
    curve = []
    for step in range(60):
        x = torch.rand(64, 2)
        loss = (model(x) - x.prod(1, keepdim=True)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        error = (model(held) - held.prod(1, keepdim=True)).square().mean().sqrt()
        curve.append(error)  # KEEPS
        if step % 10 == 9:
            recent = torch.stack(curve[-10:]).mean()
            print(f"step {step}: loss {loss.item():.4f}, held-out {recent:.4f}")


if __name__ == "__main__":
    main()
