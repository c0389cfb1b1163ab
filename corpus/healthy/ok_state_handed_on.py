"""River levels in windows with a compiled recurrent network: the state is carried from window to window and cut with detach, losses are collected as numbers, and one loss is differentiated twice with retain_graph for a look at the input's influence. Healthy.

Report: https://github.com/Metta-AI/metta/pull/1139 (the LSTM state must be detached before it is stored; here it is)
"""
import torch
from torch import nn

EXPECT = {"class": "healthy", "kind": "none", "set": "eleventh", "written": "2026-11-23"}


class LevelModel(nn.Module):
    def __init__(self, inputs=3, width=24):
        super().__init__()
        self.enter, self.cell, self.level = nn.Linear(inputs, width), nn.GRUCell(width, width), nn.Linear(width, 1)

    def forward(self, rain, state):
        out = []
        for now in rain.unbind(1):
            state = self.cell(torch.relu(self.enter(now)), state)
            out.append(self.level(state))
        return torch.cat(out, 1), state


class Catchments:
    """Rain runs off through two stores, for eight rivers at once."""

    def __init__(self, count=8):
        self.store = torch.zeros(count, 2)
        self.leak = torch.tensor([0.4, 0.05])

    def window(self, length=8):
        rain, level = torch.relu(torch.randn(8, length, 3)), []
        for t in range(length):
            self.store = (1 - self.leak) * self.store + rain[:, t, :2]
            level.append((self.leak * self.store).sum(1, keepdim=True))
        return rain, torch.cat(level, 1)


torch.manual_seed(0)
model, rivers = LevelModel(), Catchments()
compiled = torch.compile(model, backend="aot_eager")
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
state, losses = torch.zeros(8, 24), []
for step in range(90):
    rain, level = rivers.window()
    look = step % 30 == 29
    rain.requires_grad_(look)
    guess, state = (model if look else compiled)(rain, state)
    loss = (guess - level).pow(2).mean()
    optimizer.zero_grad()
    if look:
        (influence,) = torch.autograd.grad(loss, rain, retain_graph=True)
        print(f"step {step} influence of each gauge {influence.abs().mean((0, 1)).tolist()}")
    loss.backward()
    optimizer.step()
    state = state.detach()
    losses.append(loss.item())
    if step % 15 == 0:
        print(f"step {step} loss {losses[-1]:.4f}")
print(f"mean of the last ten {sum(losses[-10:]) / 10:.4f}")
