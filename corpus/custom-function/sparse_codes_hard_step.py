"""An autoencoder of gene counts with binary codes. The hard step is a module whose backward passes the gradient on, as
its author thinks. Autograd differentiates the sign itself, whose derivative is zero."""
import torch
from torch import nn
from torch.nn import functional as F

EXPECT = {
    "kind": "backward-never-called", "line": ("cause", "NEVER"), "set": "ledger", "written": "2026-11-29",
    "plain": "the encoder keeps its first weights, the codes never change, and the loss stays high",
}

GENES, CODE = 24, 12


class HardStep(nn.Module):
    def forward(self, activity):
        return torch.sign(activity)

    def backward(self, upstream):  # NEVER
        return upstream.clamp(-1, 1)


class Codes(nn.Module):
    def __init__(self):
        super().__init__()
        self.encode = nn.Sequential(nn.Linear(GENES, 32), nn.Tanh(), nn.Linear(32, CODE))
        self.step = HardStep()
        self.decode = nn.Linear(CODE, GENES)

    def forward(self, counts):
        return self.decode(self.step(self.encode(counts)))


def samples(programs, count):
    active = (torch.rand(count, len(programs)) < 0.3).float()
    return active @ programs + 0.1 * torch.randn(count, GENES)


def main():
    torch.manual_seed(4)
    programs = torch.randn(5, GENES)
    model = Codes()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for step in range(120):
        counts = samples(programs, 64)
        loss = F.mse_loss(model(counts), counts)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 30 == 0:
            print(f"step {step:3d}  loss {loss.item():.3f}")


if __name__ == "__main__":
    main()
