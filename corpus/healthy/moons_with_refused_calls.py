"""Errors of an optimizer and of a scheduler that the script expects and handles: a state of another model is given up, and a
cycle that is over is followed by a constant rate."""
import torch
from sklearn.datasets import make_moons
from torch import nn
from torch.nn import functional as F

EXPECT = {"kind": "none", "set": "ledger", "written": "2026-11-29", "what": "the handled errors change nothing"}


def main():
    torch.manual_seed(0)
    points, moons = make_moons(600, noise=0.1, random_state=1)
    inputs, labels = torch.tensor(points, dtype=torch.float32), torch.tensor(moons)
    old = torch.optim.AdamW(nn.Linear(2, 2).parameters())
    model = nn.Sequential(nn.Linear(2, 24), nn.SiLU(), nn.Linear(24, 2))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    try:
        optimizer.load_state_dict(old.state_dict())
    except ValueError as error:
        print("begins anew:", error)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=1e-2, total_steps=60)
    for step in range(120):
        batch = torch.randint(len(inputs), (40,))
        optimizer.zero_grad()
        loss = F.cross_entropy(model(inputs[batch]), labels[batch])
        loss.backward()
        optimizer.step()
        try:
            schedule.step()
        except ValueError:
            for group in optimizer.param_groups:
                group["lr"] = 1e-4
    print((model(inputs).argmax(1) == labels).float().mean().item())


if __name__ == "__main__":
    main()
