"""Second-order MAML on sine waves with functional fast weights. Nothing goes wrong.
Report: https://github.com/dragen1860/MAML-Pytorch/issues/63 (create_graph is needed in the inner loop for the second-order terms)
"""
import math

import torch
import torch.nn as nn
from torch.func import functional_call

EXPECT = {"framework": "plain", "kind": None, "set": "twentysecond", "written": "2026-11-28"}

torch.manual_seed(1)
net = nn.Sequential(nn.Linear(1, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 1))
meta_opt = torch.optim.Adam(net.parameters(), lr=4e-3)
scheduler = torch.optim.lr_scheduler.StepLR(meta_opt, step_size=90, gamma=0.3)


def task(gen):
    amp = 0.5 + 1.5 * torch.rand(1, generator=gen)
    phase = math.pi * torch.rand(1, generator=gen)

    def sample(n):
        x = torch.rand(n, 1, generator=gen) * 6 - 3
        return x, amp * torch.sin(x + phase)

    return sample


def fast_weights(support, steps, lr=0.05, second_order=True):
    weights = dict(net.named_parameters())
    x, y = support
    for _ in range(steps):
        loss = nn.functional.mse_loss(functional_call(net, weights, (x,)), y)
        grads = torch.autograd.grad(loss, list(weights.values()), create_graph=second_order)
        weights = {k: w - lr * g for (k, w), g in zip(weights.items(), grads)}
    return weights


def adapted_error(n=20):
    gen = torch.Generator().manual_seed(77)
    total = 0.0
    for _ in range(n):
        sample = task(gen)
        weights = fast_weights(sample(10), steps=2, second_order=False)
        with torch.no_grad():
            x, y = sample(50)
            total += nn.functional.mse_loss(functional_call(net, weights, (x,)), y).item() / n
    return total


gen = torch.Generator().manual_seed(5)
print(f"start: adapted error {adapted_error():.3f}")
for step in range(150):
    meta_opt.zero_grad()
    total = 0.0
    for _ in range(6):
        sample = task(gen)
        weights = fast_weights(sample(10), steps=2)
        x, y = sample(10)
        query_loss = nn.functional.mse_loss(functional_call(net, weights, (x,)), y) / 6
        query_loss.backward()
        total += query_loss.item()
    nn.utils.clip_grad_norm_(net.parameters(), 5.0)
    meta_opt.step()
    scheduler.step()
    if step % 30 == 29:
        print(f"meta step {step + 1}: query loss {total:.3f} adapted error {adapted_error():.3f}")
