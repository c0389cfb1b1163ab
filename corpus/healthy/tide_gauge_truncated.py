"""Level of a tide gauge with a GRU cell and truncated backpropagation: the state is detached once between two backward
calls, and a refinement of the forecast detaches its estimate at each turn and not the state."""
import torch
import torch.nn.functional as F
from torch import nn

EXPECT = {"class": "state detached at each step of time", "kind": None, "set": "ledger", "written": "2026-11-29"}

torch.manual_seed(1)
torch.set_num_threads(1)
CHUNK, GAUGES = 12, 16


class Gauge(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = nn.GRUCell(2, 24)
        self.read = nn.Linear(24, 1)
        self.refine = nn.GRUCell(1, 24)

    def forward(self, levels, state):
        out = []
        for t in range(levels.shape[1]):
            state = self.cell(levels[:, t], state)
            out.append(self.read(state))
        inner, estimate = state, out[-1]
        for _ in range(4):
            estimate = estimate.detach()
            inner = self.refine(estimate, inner)
            estimate = estimate + self.read(inner)
            out.append(estimate)
        return torch.cat(out, 1), state


model = Gauge()
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
state = torch.zeros(GAUGES, 24)
phase = 6.28 * torch.rand(GAUGES, 1)
for step in range(120):
    t = torch.arange(step * CHUNK, (step + 1) * CHUNK + 1)
    level = torch.sin(0.3 * t + phase)
    levels = torch.stack([level[:, :-1], 0.1 * torch.randn(GAUGES, CHUNK)], 2)
    target = torch.cat([level[:, 1:], level[:, -1:].expand(-1, 4)], 1)
    forecast, state = model(levels, state)
    loss = F.mse_loss(forecast, target)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    state = state.detach()
    if step % 40 == 0:
        print(f"step {step}  mse {loss.item():.4f}")
