"""Healthy: MAML with inner steps through torch.func.functional_call and create_graph."""

import torch
from torch import nn
from torch.func import functional_call

EXPECT = {"kind": None}


def sample_task():
    amp, phase = torch.rand(1) * 4 + 1, torch.rand(1) * 3
    x = torch.rand(20, 1) * 10 - 5
    return x, amp * torch.sin(x + phase)


def main():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(1, 20), nn.ReLU(), nn.Linear(20, 1))
    meta = torch.optim.Adam(net.parameters(), lr=1e-3)
    for step in range(6):
        meta.zero_grad()
        total = 0
        for _ in range(3):
            x, y = sample_task()
            fast = dict(net.named_parameters())
            for _ in range(2):
                loss = nn.functional.mse_loss(functional_call(net, fast, (x[:10],)), y[:10])
                grads = torch.autograd.grad(loss, list(fast.values()), create_graph=True)
                fast = {k: p - 0.01 * g for (k, p), g in zip(fast.items(), grads)}
            total = total + nn.functional.mse_loss(functional_call(net, fast, (x[10:],)), y[10:])
        (total / 3).backward()
        meta.step()
    print(total.item())


if __name__ == "__main__":
    main()
