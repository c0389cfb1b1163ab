"""A signal generator that doubles its resolution in the middle of training; the new stage joins the optimizer.

Source: https://github.com/pytorch/pytorch/issues/715 (same: https://github.com/pytorch/pytorch/issues/666)
Plain PyTorch 2.13: silent; the new stage keeps its initial weights.
"""
import torch
from torch import nn
from torch.nn import functional as F

EXPECT = {
    "class": "d", "kind": "unregistered-parameter", "cut_marker": "CUT", "step": 260, "plain": {"outcome": "silent"},
    "set": "thirteenth", "written": "2026-11-25",
}


class Stage(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.a, self.b = nn.Conv1d(width, width, 5, padding=2), nn.Conv1d(width, width, 5, padding=2)
        self.norm = nn.GroupNorm(4, width)

    def forward(self, x):
        return x + self.b(F.gelu(self.a(self.norm(x))))


class Grower(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.width = width
        self.lift, self.out = nn.Conv1d(1, width, 3, padding=1), nn.Conv1d(width, 1, 3, padding=1)
        self.coarse = nn.ModuleList([Stage(width), Stage(width)])
        self.fine, self.blend = (), 0.0

    def grow(self):
        self.fine = tuple(Stage(self.width) for _ in range(2))  # CUT
        self.blend = 0.0

    def forward(self, x):
        h = self.lift(x)
        for stage in self.coarse:
            h = stage(h)
        if self.fine:
            self.blend = min(1.0, self.blend + 0.01)
            up = F.interpolate(h, scale_factor=2, mode="linear", align_corners=False)
            h = up
            for stage in self.fine:
                h = stage(h)
            h = up + self.blend * (h - up)
        return self.out(h)


def signals(count, fine):
    t = torch.linspace(0, 1, 65 if fine else 33)[:-1]
    f = 2 + 4 * torch.rand(count, 1)
    phase = 6 * torch.rand(count, 1)
    wave = torch.sin(f * 6 * t + phase) + 0.3 * torch.sin(5 * f * t + 2 * phase)
    return wave[:, None, :: 2 if fine else 1] + 0.05 * torch.randn(count, 1, 32), wave[:, None]


def join(opt, model):
    known = {id(p) for group in opt.param_groups for p in group["params"]}
    new = [p for p in model.parameters() if id(p) not in known]
    if new:
        opt.add_param_group({"params": new, "lr": 2e-3})


def main():
    torch.manual_seed(0)
    model = Grower()
    opt = torch.optim.AdamW(model.parameters(), lr=2e-3)
    for step in range(520):
        if step == 260:
            model.grow()
            join(opt, model)
        x, y = signals(16, step >= 260)
        loss = F.mse_loss(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 40 == 0:
            print(step, f"{loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
