"""Sparsity controller: a full backward hook on the model reads p.grad of its parameters; the input needs no gradient."""

import torch
from torch import nn

EXPECT = {"kind": "hook-order", "line": ("stale", "STALE")}


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 8, bias=False)

    def forward(self, x):
        return self.fc(x)


SCORES = []


def score(module, grad_input, grad_output):
    total = 0.0
    for p in module.parameters():
        if p.grad is not None:  # STALE
            total += (p.grad * p).abs().sum().item()  # STALE
    SCORES.append(total)


if __name__ == "__main__":
    torch.manual_seed(0)
    net = Net()
    net.register_full_backward_hook(score)  # HOOK
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(3):
        loss = net(torch.randn(2, 4)).square().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
    print({"reproduced": SCORES == [0.0, 0.0, 0.0], "scores": SCORES})
