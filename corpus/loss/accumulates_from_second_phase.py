"""Matches pairs of signatures with accelerate. After 40 small batches the script begins to accumulate six of them, and divides what backward divides as well."""
import torch
from accelerate import Accelerator
from torch import nn
from torch.nn import functional as F

EXPECT = {
    "class": "loss-divided-twice", "framework": "accelerate", "kind": "loss-divided-twice", "line": ("cause", "DIVIDES"),
    "set": "ledger", "written": "2026-11-27",
}


class Embedder(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(20, 32), nn.GELU(), nn.Linear(32, 8))

    def forward(self, strokes):
        return F.normalize(self.layers(strokes), dim=-1)


def pairs(count):
    writer = torch.randn(count, 20)
    return writer + 0.2 * torch.randn(count, 20), writer + 0.2 * torch.randn(count, 20)


def contrast(model, left, right):
    similarity = model(left) @ model(right).T / 0.2
    return F.cross_entropy(similarity, torch.arange(len(left)))


def main():
    torch.manual_seed(9)
    accelerator = Accelerator(cpu=True)
    model = Embedder()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model, optimizer = accelerator.prepare(model, optimizer)
    for accumulated, batches in ((1, 40), (6, 180)):
        accelerator.gradient_accumulation_steps = accumulated
        for _ in range(batches):
            with accelerator.accumulate(model):
                loss = contrast(model, *pairs(24))
                if accumulated > 1:
                    loss = loss / 6  # DIVIDES
                accelerator.backward(loss)
                optimizer.step()
                optimizer.zero_grad()
        print(accumulated, contrast(model, *pairs(24)).item())


if __name__ == "__main__":
    main()
