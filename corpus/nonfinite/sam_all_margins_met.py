"""Sharpness-aware minimisation of a hinge loss: in the first batch whose margins are all met every gradient is zero, and the step up the slope is 0 / 0.

Report: https://github.com/google-deepmind/optax/pull/1743 (division by a zero gradient norm in SAM; the same line in rollovd/LookSAM issue 1)
"""
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

EXPECT = {
    "class": "born-without-gradient", "kind": "nonfinite-forward-poisons-backward", "source_marker": "BORN", "step": 177,
    "set": "fifth", "written": "2026-11-22",
}


class SAM:
    def __init__(self, params, base, rho=0.05):
        self.params, self.base, self.rho, self.climbed = list(params), base, rho, {}

    @torch.no_grad()
    def first_step(self):
        norm = torch.stack([p.grad.norm() for p in self.params]).norm()
        for p in self.params:
            e_w = self.rho * p.grad / norm  # BORN
            p.add_(e_w)
            self.climbed[p] = e_w
        self.base.zero_grad()

    @torch.no_grad()
    def second_step(self):
        for p in self.params:
            p.sub_(self.climbed[p])
        self.base.step()
        self.base.zero_grad()


torch.manual_seed(4)
n = 1600
features = torch.randn(n, 12)
labels = torch.where(features[:, :3].sum(1) + 0.3 * features[:, 3] > 0, 1.0, -1.0)
features = features + 0.1 * labels[:, None] * torch.tensor([1.0] * 3 + [0.0] * 9)
loader = DataLoader(TensorDataset(features, labels), batch_size=16, shuffle=True)
svm = nn.Sequential(nn.Linear(12, 24), nn.Tanh(), nn.Linear(24, 1))
sam = SAM(svm.parameters(), torch.optim.SGD(svm.parameters(), 0.004, momentum=0.9))


def hinge(x, y):
    return (1 - y * svm(x).squeeze(1)).clamp(min=0).mean()


step = 0
for epoch in range(4):
    for x, y in loader:
        loss = hinge(x, y)
        loss.backward()
        sam.first_step()
        hinge(x, y).backward()
        sam.second_step()
        if step % 40 == 0 or loss == 0:
            print(epoch, step, loss.item())
        step += 1
