"""Running averages of two losses are kept as tensors for a report: each update hangs the new graph below the old one.

Report: https://github.com/alexhernandezgarcia/gflownet/pull/133
"""
import torch
from torch import nn

EXPECT = {
    "class": "retention", "kind": "graph-retained", "holding_marker": "HOLDS",
    "set": "first", "written": "2026-11-22",
}


class Agent:
    def __init__(self):
        self.net = nn.Sequential(nn.Linear(6, 32), nn.LeakyReLU(), nn.Linear(32, 1))
        self.opt = torch.optim.Adam(self.net.parameters(), 1e-3)
        self.ema = {"terminal": None, "flow": None}

    def log(self, name, value):
        if self.ema[name] is None:
            self.ema[name] = value
        else:
            self.ema[name] = 0.9 * self.ema[name] + 0.1 * value  # HOLDS

    def train_step(self):
        x = torch.randn(16, 6)
        flow = self.net(x)
        terminal, inner = (flow[:8] - 1).square().mean(), (flow[8:] - x[8:, :1]).square().mean()
        self.log("terminal", terminal)
        self.log("flow", inner)
        loss = terminal + inner
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()


torch.manual_seed(0)
agent = Agent()
for step in range(50):
    agent.train_step()
print("reproduced", agent.ema["flow"].grad_fn is not None)
