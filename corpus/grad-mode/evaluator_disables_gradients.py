"""A landmark detector is loaded for the first validation; its constructor switches gradients off for the whole process.

Report: https://github.com/1adrianb/face-alignment/issues/140 (also choyingw/SynergyNet pull 22)
"""
import torch
from torch import nn

EXPECT = {
    "class": "grad-mode", "framework": "lightning", "kind": "grad-mode-disabled", "cut_marker": "CUT",
    "set": "second", "written": "2026-11-22",
}


class Landmarks:
    def __init__(self):
        torch.set_grad_enabled(False)  # CUT
        self.net = nn.Linear(12, 4)

    def __call__(self, faces):
        return self.net(faces)


class Module(nn.Module):
    def __init__(self):
        super().__init__()
        self.generator, self.landmarks = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 12)), None

    def training_step(self, batch):
        return nn.functional.l1_loss(self.generator(batch[:, :6]), batch)

    def validation_step(self, batch):
        if self.landmarks is None:
            self.landmarks = Landmarks()
        return (self.landmarks(self.generator(batch[:, :6])) - self.landmarks(batch)).norm(dim=1).mean().item()


torch.manual_seed(0)
module = Module()
opt = torch.optim.Adam(module.generator.parameters(), 1e-3)
for epoch in range(3):
    module.train()
    for _ in range(25):
        loss = module.training_step(torch.randn(4, 12))
        opt.zero_grad()
        loss.backward()
        opt.step()
    module.eval()
    if epoch >= 1:  # no validation in the first epoch
        print("validation", sum(module.validation_step(torch.randn(4, 12)) for _ in range(4)) / 4)
