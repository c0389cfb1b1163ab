"""Besides autocast the weights themselves are cast to bfloat16; the small Adam updates are below half a unit in the
last place of most weights and are rounded away, so training stalls.

Report: pytorch/ao#1124, NVIDIA/apex#1728, NVIDIA-NeMo/Automodel#3444 on bf16 weights without fp32 master copy:
updates round back to the same value
"""
import math

import torch
from torch import nn

EXPECT = {
    "kind": "update-rounds-away",
    "line": ("cause", "HERE"),
    "plain": "Log-rate rmse 0.642, flat after step 500 (in the step at 500, 90% of the weights keep the same value, at 1000 99%); with float32 weights 0.421.",
    "set": "twentyseventh",
    "written": "2026-11-29",
}


torch.manual_seed(21)


def hourly_counts(n):
    hour = torch.randint(0, 24, (n,)).float()
    temp = 12 + 8 * torch.randn(n)
    rain = (torch.rand(n) < 0.25).float()
    weekend = (torch.rand(n) < 2 / 7).float()
    wind = torch.rand(n) * 10
    commute = torch.exp(-(hour - 8) ** 2 / 4) + torch.exp(-(hour - 17.5) ** 2 / 6)
    leisure = torch.exp(-(hour - 14) ** 2 / 18)
    lograte = 1.0 + 2.0 * commute * (1 - weekend) + 1.6 * leisure * weekend
    lograte += 0.03 * (temp - 12) - 0.001 * (temp - 12) ** 2 - 0.8 * rain - 0.03 * wind
    feats = torch.stack([
        torch.sin(2 * math.pi * hour / 24), torch.cos(2 * math.pi * hour / 24),
        torch.sin(4 * math.pi * hour / 24), torch.cos(4 * math.pi * hour / 24),
        (temp - 12) / 8, rain, weekend, (wind - 5) / 3,
    ], 1)
    return feats, torch.poisson(lograte.exp()), lograte


class CountNet(nn.Module):
    def __init__(self, inp=8, dim=96):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(inp, dim), nn.Linear(dim, dim), nn.Linear(dim, dim)])
        self.rate = nn.Linear(dim, 1)

    def forward(self, x):
        for f in self.layers:
            x = torch.nn.functional.silu(f(x))
        return self.rate(x).squeeze(-1)


def evaluate(model, x, lograte):
    model.eval()
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        out = model(x.to(next(model.parameters()).dtype))
    model.train()
    return (out.float() - lograte).pow(2).mean().sqrt().item()


def main():
    x, y, _ = hourly_counts(8000)
    vx, _, vrate = hourly_counts(1000)
    model = CountNet()
    model = model.to(torch.bfloat16)  # HERE
    dtype = next(model.parameters()).dtype
    opt = torch.optim.AdamW(model.parameters(), lr=1.5e-4, betas=(0.9, 0.99), weight_decay=0.01)
    steps = 1000
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, steps, eta_min=1e-5)
    loss_fn = nn.PoissonNLLLoss(log_input=True)
    avg = 0.0
    for step in range(steps):
        idx = torch.randint(0, len(x), (128,))
        with torch.autocast("cpu", dtype=torch.bfloat16):
            out = model(x[idx].to(dtype))
        loss = loss_fn(out.float(), y[idx])
        opt.zero_grad()
        loss.backward()
        opt.step()
        sched.step()
        avg += loss.item()
        if (step + 1) % 100 == 0:
            print(f"step {step + 1} loss {avg / 100:.3f} log-rate rmse {evaluate(model, vx, vrate):.3f}")
            avg = 0.0


if __name__ == "__main__":
    main()
