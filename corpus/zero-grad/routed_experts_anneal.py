"""Soft mixture of experts whose routing is sharpened step by step.

Source: https://github.com/ericjang/gumbel-softmax/issues/2 (a temperature very close to 0 and the backward pass) and
        https://github.com/EleutherAI/DALLE-mtf/issues/2 (temperature annealing)
Plain PyTorch 2.13: silent; from some step on the router's gradient is exactly zero, the experts go on learning.
"""
import torch
from torch import nn
from torch.nn import functional as F

EXPECT = {
    "class": "d", "kind": "zero-grad", "parameters": ["blocks.0.router.weight", "blocks.0.router.bias", "blocks.1.router.weight", "blocks.1.router.bias"],
    "cut_marker": "CUT", "cut_op": "softmax", "step": 200, "plain": {"outcome": "silent"},
    "set": "thirteenth", "written": "2026-11-25",
}


class Schedule:
    """Values that change during training, by name."""

    def __init__(self, **rules):
        self.rules, self.now = rules, 0

    def __getitem__(self, name):
        start, factor = self.rules[name]
        return start * factor**self.now

    def advance(self):
        self.now += 1


class Mixture(nn.Module):
    def __init__(self, width, experts, schedule):
        super().__init__()
        self.schedule = schedule
        self.norm, self.router = nn.LayerNorm(width), nn.Linear(width, experts)
        self.up = nn.Parameter(torch.randn(experts, width, 2 * width) / width**0.5)
        self.down = nn.Parameter(torch.randn(experts, 2 * width, width) / (2 * width) ** 0.5)

    def forward(self, x):
        h = self.norm(x)
        share = F.softmax(self.router(h) / self.schedule["temperature"], dim=-1)  # CUT
        each = torch.einsum("eth,ehd->etd", F.gelu(torch.einsum("td,edh->eth", h, self.up)), self.down)
        return x + torch.einsum("te,etd->td", share, each)


class Net(nn.Module):
    def __init__(self, schedule, width=24):
        super().__init__()
        self.embed = nn.Linear(6, width)
        self.blocks = nn.ModuleList(Mixture(width, 3, schedule) for _ in range(2))
        self.head = nn.Linear(width, 1)

    def forward(self, x):
        x = self.embed(x)
        for block in self.blocks:
            x = block(x)
        return self.head(x).squeeze(1)


def data(count=64):
    x = torch.rand(count, 6) * 2 - 1
    y = torch.where(x[:, 0] > 0.3, (3 * x[:, 1]).sin(), torch.where(x[:, 0] < -0.3, x[:, 2] * x[:, 3], x[:, 4].abs()))
    return x, y


def main():
    torch.manual_seed(0)
    schedule = Schedule(temperature=(1.0, 0.94), rate=(3e-3, 0.999))
    net = Net(schedule)
    opt = torch.optim.AdamW(net.parameters(), lr=3e-3, weight_decay=0.0)
    for step in range(700):
        for group in opt.param_groups:
            group["lr"] = schedule["rate"]
        x, y = data()
        loss = F.mse_loss(net(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        schedule.advance()
        if step % 50 == 0:
            print(step, f"{loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
