"""Sine waves by model-agnostic meta-learning: the inner steps differentiate with create_graph=True into fast weights, the outer step goes through them; two of five tasks are only looked at. Healthy.

Report: https://github.com/pytorch/pytorch/issues/4661 (create_graph may leak with backward(); "if I just use autograd.grad ... without any memory leak")
"""
import torch
from torch import nn
from torch.func import functional_call

EXPECT = {"class": "healthy", "kind": "none", "set": "eleventh", "written": "2026-11-23"}


class Curve(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(1, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 1))

    def forward(self, x):
        return self.net(x)


class Wave:
    def __init__(self):
        self.height, self.shift = 0.5 + 2 * torch.rand(()), 3.1 * torch.rand(())

    def points(self, count=10):
        x = 10 * torch.rand(count, 1) - 5
        return x / 5, self.height * torch.sin(x + self.shift)


def adapt(model, wave, rate=0.05, steps=2):
    fast = dict(model.named_parameters())
    for _ in range(steps):
        x, y = wave.points()
        loss = (functional_call(model, fast, (x,)) - y).pow(2).mean()
        gradients = torch.autograd.grad(loss, list(fast.values()), create_graph=True)
        fast = {name: p - rate * g for (name, p), g in zip(fast.items(), gradients)}
    return fast


def error_after(model, wave):
    fast = adapt(model, wave)
    x, y = wave.points(20)
    return (functional_call(model, fast, (x,)) - y).pow(2).mean()


torch.manual_seed(0)
model = Curve()
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
history = []
for step in range(100):
    loss = torch.stack([error_after(model, Wave()) for _ in range(6)]).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    history.append(loss.detach())
    if step % 20 == 0:
        seen = sum(error_after(model, Wave()).item() for _ in range(2)) / 2
        print(f"step {step} loss {loss.item():.4f} other waves {seen:.4f}")
print(f"first and last ten: {torch.stack(history[:10]).mean():.3f} {torch.stack(history[-10:]).mean():.3f}")
