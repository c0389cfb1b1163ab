"""Digits with a max-norm head: as soon as a row of weights is longer than allowed, forward rescales them, after the product has kept them for backward."""
import torch
from sklearn.datasets import load_digits
from torch import nn

EXPECT = {
    "class": "late-inplace", "kind": "inplace", "mutating_marker": "MUTATES", "module": "head", "step": 194,
    "set": "late", "written": "2026-11-22",
}


class MaxNormLinear(nn.Linear):
    def __init__(self, inputs, outputs, limit):
        super().__init__(inputs, outputs)
        self.limit = limit

    def forward(self, x):
        out = nn.functional.linear(x, self.weight, self.bias)
        if self.training:
            with torch.no_grad():
                norm = self.weight.norm(dim=1, keepdim=True)
                if (norm > self.limit).any():
                    self.weight.mul_((self.limit / norm).clamp(max=1.0))  # MUTATES
        return out


torch.manual_seed(0)
digits = load_digits()
x, y = torch.tensor(digits.data).float() / 16, torch.tensor(digits.target)
net = nn.Sequential()
net.add_module("body", nn.Sequential(nn.Linear(64, 32), nn.ReLU()))
net.add_module("head", MaxNormLinear(32, 10, limit=2.2))
opt = torch.optim.SGD(
    [{"params": net.body.parameters(), "weight_decay": 1e-4}, {"params": net.head.parameters(), "lr": 2e-2}],
    lr=1e-2, momentum=0.9,
)
step = 0
for epoch in range(40):
    net.train()
    for rows in torch.randperm(1500).split(25):
        loss = nn.functional.cross_entropy(net(x[rows]), y[rows])
        opt.zero_grad()
        loss.backward()
        opt.step()
        step += 1
    net.eval()
    with torch.no_grad():
        accuracy = (net(x[1500:]).argmax(1) == y[1500:]).float().mean().item()
    print(f"epoch {epoch} step {step} loss {loss.item():.3f} validation {accuracy:.3f}")
