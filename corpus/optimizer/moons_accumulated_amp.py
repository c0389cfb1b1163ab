"""Two moons with a gradient scaler: gradients of four batches are added up, and clipping unscales them after each batch."""
import torch
from sklearn.datasets import make_moons
from torch import nn
from torch.nn import functional as F

EXPECT = {
    "kind": "optimizer-error", "line": ("cause", "UNSCALED"), "late": True, "set": "ledger", "written": "2026-11-29",
    "plain": "RuntimeError: unscale_() has already been called on this optimizer since the last update().",
}
ACCUMULATED = {0: 1, 1: 4}


def epoch(number, model, optimizer, scaler, inputs, labels):
    model.train()
    for at, batch in enumerate(torch.randperm(len(inputs)).split(20), start=1):
        loss = F.cross_entropy(model(inputs[batch]), labels[batch]) / ACCUMULATED[number]
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)  # UNSCALED
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        if at % ACCUMULATED[number] == 0:
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()


def main():
    torch.manual_seed(0)
    points, moons = make_moons(1200, noise=0.1, random_state=0)
    inputs, labels = torch.tensor(points, dtype=torch.float32), torch.tensor(moons)
    model = nn.Sequential(nn.Linear(2, 24), nn.SiLU(), nn.Linear(24, 2))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    scaler = torch.amp.GradScaler("cpu", init_scale=256.0)
    for number in ACCUMULATED:
        epoch(number, model, optimizer, scaler, inputs, labels)
        print(number, (model(inputs).argmax(1) == labels).float().mean().item())


if __name__ == "__main__":
    main()
