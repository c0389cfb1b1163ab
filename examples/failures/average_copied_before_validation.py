"""A moving average of the weights is copied into the model for each validation, and nothing copies the weights back."""

import torch
from torch import nn

EXPECT = {"kind": "weights-put-back", "line": ("mutated", "COPIED")}


class Average:
    def __init__(self, model, decay=0.99):
        self.decay, self.values = decay, {name: p.detach().clone() for name, p in model.named_parameters()}

    def update(self, model):
        for name, p in model.named_parameters():
            self.values[name].lerp_(p.detach(), 1 - self.decay)

    def put_into(self, model):
        for name, p in model.named_parameters():
            p.data.copy_(self.values[name])  # COPIED


torch.manual_seed(0)
model = nn.Sequential(nn.Linear(12, 32), nn.GELU(), nn.Linear(32, 1))
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
average = Average(model)
held_out = torch.randn(256, 12)
for step in range(1, 261):
    x = torch.randn(32, 12)
    loss = (model(x) - x[:, :4].prod(dim=1, keepdim=True)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    average.update(model)
    if step % 60 == 0:
        average.put_into(model)
        with torch.no_grad():
            error = (model(held_out) - held_out[:, :4].prod(dim=1, keepdim=True)).square().mean()
        print(step, loss.item(), error.item())
