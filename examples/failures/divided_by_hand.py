"""The loss of each batch is divided by hand, and accelerate divides it again: the gradients are five times too small."""

import torch
from accelerate import Accelerator
from torch import nn

EXPECT = {"kind": "loss-divided-twice", "line": ("cause", "DIVIDES")}

ACCUMULATE = 5

torch.manual_seed(0)
accelerator = Accelerator(cpu=True, gradient_accumulation_steps=ACCUMULATE)
model = nn.Sequential(nn.Linear(12, 24), nn.ReLU(), nn.Linear(24, 3))
optimizer = torch.optim.SGD(model.parameters(), lr=0.2)
model, optimizer = accelerator.prepare(model, optimizer)
for batch in range(50):
    x = torch.randn(16, 12)
    with accelerator.accumulate(model):
        loss = nn.functional.cross_entropy(model(x), x[:, :3].argmax(1))
        accelerator.backward(loss / ACCUMULATE)  # DIVIDES
        optimizer.step()
        optimizer.zero_grad()
