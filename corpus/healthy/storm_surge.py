"""Healthy: gradient norms of 150 to 580, clipped to 0.5."""
import math

import torch
import torch.nn.functional as F
from torch import nn

EXPECT = {
    "kind": None,
    "set": "eighteen_classes",
    "written": "2026-11-29",
}


torch.manual_seed(55)
HOURS, HIDDEN = 40, 32


class SurgeNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.recur = nn.Linear(HIDDEN, HIDDEN, bias=False)
        self.drive = nn.Linear(3, HIDDEN)
        self.read = nn.Linear(HIDDEN, 1)
        nn.init.orthogonal_(self.recur.weight, gain=1.05)

    def forward(self, x, state):
        outs = []
        for t in range(x.shape[1]):
            state = torch.tanh(self.recur(state) + self.drive(x[:, t]))
            outs.append(self.read(state))
        return torch.cat(outs, 1), state


class Coast:
    def __init__(self, seed=0):
        self.g = torch.Generator().manual_seed(seed)
        self.level = torch.zeros(16)
        self.clock = 0

    def window(self):
        wind = torch.randn(16, HOURS, generator=self.g)
        storm = torch.rand(16, 1, generator=self.g) < 0.1
        wind = wind * torch.where(storm, 8.0, 1.0)
        xs, ys = [], []
        for t in range(HOURS):
            tide = math.sin(2 * math.pi * self.clock / 12.4)
            self.level = 0.9 * self.level + 0.2 * wind[:, t]
            xs.append(torch.stack([wind[:, t], torch.full((16,), tide), self.level.sign()], 1))
            ys.append(self.level + tide)
            self.clock += 1
        return torch.stack(xs, 1), torch.stack(ys, 1)


def main():
    coast = Coast()
    model = SurgeNet()
    opt = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    sched = torch.optim.lr_scheduler.OneCycleLR(opt, max_lr=0.1, total_steps=400, pct_start=0.3)
    state = torch.zeros(16, HIDDEN)
    norms, losses = [], []
    for step in range(400):
        x, y = coast.window()
        pred, state = model(x, state)
        loss = F.mse_loss(pred, y, reduction="sum") / 16
        opt.zero_grad()
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        opt.step()
        sched.step()
        state = state.detach()
        norms.append(float(norm))
        losses.append(loss.item() / HOURS)
        if step % 50 == 49:
            print(f"step {step + 1}  mse {sum(losses[-50:]) / 50:.4f}  largest norm {max(norms[-50:]):.1f}")


if __name__ == "__main__":
    main()
