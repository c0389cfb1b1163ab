"""Rates wines with accelerate. After 40 batches the script begins to accumulate four of them, with a loss that goes around the accelerator's backward."""
import torch
from accelerate import Accelerator
from torch import nn
from torch.nn import functional as F

EXPECT = {
    "class": "accumulation-not-averaged", "framework": "accelerate", "kind": "accumulation-not-averaged", "line": ("cause", "HERE"),
    "set": "ledger", "written": "2026-11-29",
}


class Rater(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(11, 32), nn.SiLU(), nn.Linear(32, 1))

    def forward(self, acids):
        return self.layers(acids).squeeze(-1)


def wines(count):
    acids = torch.randn(count, 11)
    return acids, acids[:, 0] - 0.5 * acids[:, 3].abs() + 0.1 * torch.randn(count)


def main():
    torch.manual_seed(3)
    accelerator = Accelerator(cpu=True)
    model = Rater()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    model, optimizer = accelerator.prepare(model, optimizer)
    for _ in range(40):
        acids, scores = wines(16)
        accelerator.backward(F.smooth_l1_loss(model(acids), scores))
        optimizer.step()
        optimizer.zero_grad()
    accelerator.gradient_accumulation_steps = 4
    for batch in range(240):
        with accelerator.accumulate(model):
            acids, scores = wines(16)
            loss = F.smooth_l1_loss(model(acids), scores)
            loss.backward()  # HERE
            if batch % 60 == 0:
                accelerator.print(f"batch {batch}: {loss.item():.3f}")
            optimizer.step()
            optimizer.zero_grad()


if __name__ == "__main__":
    main()
