"""The pair distance is a bare sqrt of a sum of squares: when a batch first holds two rafts with identical readings the
distance is 0, its gradient is 0 times infinity, and all weights turn NaN after some hundred good steps.

Report: https://github.com/pytorch/pytorch/issues/2421 (gradient of a zero norm is nan),
https://github.com/akanazawa/cmr/issues/11
"""

import torch
import torch.nn as nn
import torch.nn.functional as F

EXPECT = {
    "kind": "nonfinite-backward",
    "line": ("cause", "HERE"),
    "plain": "with: fine until step 269, then loss and weights NaN (stress nan); with + 1e-8 under the root: stress 0.0067 at the end",
    "set": "twentyeighth",
    "written": "2026-11-29",
}


torch.manual_seed(23)


def make_rafts(n=400, channels=16, seed=8):
    g = torch.Generator().manual_seed(seed)
    place = torch.rand(n, 2, generator=g) * 6.0
    lift = torch.randn(2, channels, generator=g)
    bend = torch.randn(2, channels, generator=g) * 0.6
    readings = torch.sin(place @ lift * 0.5) + 0.3 * torch.cos(place @ bend)
    shared = torch.randperm(n, generator=g)[:4]
    place[shared[2:]] = place[shared[:2]]
    readings[shared[2:]] = readings[shared[:2]]
    return readings, place


class Chart(nn.Module):
    def __init__(self, channels=16, width=64):
        super().__init__()
        self.inp = nn.Linear(channels, width)
        self.mid = nn.ModuleList([nn.Linear(width, width) for _ in range(2)])
        self.norms = nn.ModuleList([nn.LayerNorm(width) for _ in range(2)])
        self.out = nn.Linear(width, 2)

    def forward(self, x):
        h = F.gelu(self.inp(x))
        for lin, norm in zip(self.mid, self.norms):
            h = h + F.gelu(lin(norm(h)))
        return self.out(h)


def pair_distance(a, b):
    return torch.sqrt(((a - b) ** 2).sum(dim=-1))  # HERE


def draw_pairs(n, batch, gen):
    i = torch.randint(0, n, (batch,), generator=gen)
    shift = torch.randint(1, n, (batch,), generator=gen)
    return i, (i + shift) % n


@torch.no_grad()
def stress(model, readings, place):
    z = model(readings)
    d = torch.cdist(z, z)
    t = torch.cdist(place, place)
    return ((d - t) ** 2).mean().div((t ** 2).mean()).sqrt().item()


def train(steps=900, batch=128):
    readings, place = make_rafts()
    gen = torch.Generator().manual_seed(38)
    model = Chart()
    opt = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=1e-3)
    sched = torch.optim.lr_scheduler.OneCycleLR(opt, max_lr=2e-3, total_steps=steps)
    for step in range(steps):
        i, j = draw_pairs(len(readings), batch, gen)
        with torch.no_grad():
            target = (place[i] - place[j]).norm(dim=-1)
        zi, zj = model(readings[i]), model(readings[j])
        loss = F.smooth_l1_loss(pair_distance(zi, zj), target)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        opt.step()
        sched.step()
        if (step + 1) % 75 == 0:
            print(f"step {step + 1:4d} loss {loss.item():.4f} stress {stress(model, readings, place):.4f}")
    return model


if __name__ == "__main__":
    train()
