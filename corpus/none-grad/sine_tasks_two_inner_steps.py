"""MAML with learned inner step sizes on sine waves; after a while tasks get two inner steps instead of one.

Source: https://github.com/oscarknagg/few-shot/issues/9 and https://github.com/facebookresearch/higher/issues/102
Plain PyTorch 2.13: silent; the loss still has a gradient, and the optimizer skips the network's weights.
"""
import math

import torch
from torch import nn
from torch.func import functional_call

EXPECT = {
    "class": "d", "kind": "none-grad", "cut_marker": "CUT", "step": 180,
    "parameters": ["net.0.weight", "net.0.bias", "net.2.weight", "net.2.bias", "net.4.weight", "net.4.bias"],
    "plain": {"outcome": "silent"},
    "set": "thirteenth", "written": "2026-11-25",
}


class Meta(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(1, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 1))
        self.log_rate = nn.ParameterDict({n.replace(".", "_"): nn.Parameter(torch.tensor(-3.0)) for n, _ in self.net.named_parameters()})

    def rate(self, name):
        return self.log_rate[name.replace(".", "_")].exp()

    def predict(self, weights, x):
        return functional_call(self.net, weights, (x,))

    def leaves(self, weights):
        return {n: w if w.is_leaf else w.detach().requires_grad_() for n, w in weights.items()}  # CUT

    def adapt(self, x, y, steps):
        fast = dict(self.net.named_parameters())
        for _ in range(steps):
            fast = self.leaves(fast)
            loss = nn.functional.mse_loss(self.predict(fast, x), y)
            grads = torch.autograd.grad(loss, list(fast.values()), create_graph=True)
            fast = {n: w - self.rate(n) * g for (n, w), g in zip(fast.items(), grads)}
        return fast


def wave(generator):
    height = 0.5 + 2 * torch.rand(1, generator=generator)
    phase = math.pi * torch.rand(1, generator=generator)
    x = 6 * torch.rand(20, 1, generator=generator) - 3
    y = height * torch.sin(x + phase)
    return x[:10], y[:10], x[10:], y[10:]


def main():
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(2)
    meta = Meta()
    opt = torch.optim.Adam(meta.parameters(), lr=2e-3)
    for step in range(400):
        inner = 1 if step < 180 else 2
        loss = 0.0
        for _ in range(3):
            x, y, query, target = wave(generator)
            fast = meta.adapt(x, y, inner)
            loss = loss + nn.functional.mse_loss(meta.predict(fast, query), target) / 3
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 40 == 0:
            print(step, f"{loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
