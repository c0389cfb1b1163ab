"""Tides at a harbour: after 150 steps in single precision the run goes on in mixed precision with a loss scaler, whose
step and update were forgotten in that branch."""
import torch
import torch.nn as nn

EXPECT = {
    "class": "scaled gradients are used",
    "kind": "scaled-gradient-used",
    "line": ["cause", "cause"],
    "set": "ledger",
    "written": "2026-11-27",
}

torch.manual_seed(8)
torch.set_num_threads(1)


class Harbour:
    def __init__(self):
        self.model = nn.Sequential(nn.Linear(6, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 1))
        self.optimizer = torch.optim.RMSprop(self.model.parameters(), lr=1e-4)
        self.scaler = torch.amp.GradScaler("cpu")

    def loss(self, hours, mixed):
        phases = torch.stack([f(hours * w) for w in (0.5, 0.52, 0.26) for f in (torch.sin, torch.cos)], dim=1)
        height = 2 * phases[:, 0] + 0.6 * phases[:, 3] + 0.2 * phases[:, 4]
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=mixed):
            predicted = self.model(phases)
        return nn.functional.mse_loss(predicted.float().squeeze(1), height)

    def step(self, hours, mixed):
        loss = self.loss(hours, mixed)
        self.optimizer.zero_grad()
        if mixed:
            self.scaler.scale(loss).backward()
        else:
            loss.backward()
        self.optimizer.step()  # <-- cause
        return loss


harbour = Harbour()
for step in range(400):
    loss = harbour.step(torch.rand(64) * 700, mixed=step >= 150)
    if step % 100 == 0:
        print(step, round(loss.item(), 4))
