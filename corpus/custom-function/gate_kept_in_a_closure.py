"""A gate whose backward reads the mask of its latest call from a closure; a detached target network shares it.

From step 60 on, the target is computed after the prediction, without gradients, and overwrites the mask.
"""

import torch
from torch import nn

EXPECT = {
    "class": "state-outside-ctx", "kind": "wrong-backward", "line": ("cause", "HERE"), "check": None, "set": "ledger",
    "written": "2026-11-29",
}


def make_gate(threshold):
    mask = None

    class Gate(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            nonlocal mask
            mask = (x > threshold).to(x.dtype)  # HERE
            return x * mask

        @staticmethod
        def backward(ctx, grad):
            return grad * mask

    return Gate.apply


class Net(nn.Module):
    def __init__(self, gate):
        super().__init__()
        self.first, self.last, self.gate = nn.Linear(10, 32), nn.Linear(32, 4), gate

    def forward(self, x):
        return self.last(self.gate(self.first(x)))


torch.manual_seed(0)
gate = make_gate(0.1)
online, target = Net(gate), Net(gate)
optimizer = torch.optim.Adam(online.parameters(), lr=3e-3)
mixing = torch.randn(10, 4)
for step in range(200):
    x = torch.randn(32, 10)
    prediction = online(x)
    loss = (prediction - torch.tanh(x @ mixing)).square().mean()
    if step >= 60:
        with torch.no_grad():
            goal = target(x + 0.3 * torch.randn_like(x))
        loss = loss + 0.2 * (prediction - goal).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    with torch.no_grad():
        for mine, its in zip(target.parameters(), online.parameters(), strict=True):
            mine.lerp_(its, 0.05)
