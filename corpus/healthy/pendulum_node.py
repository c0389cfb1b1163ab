"""Neural ODE of a pendulum, fitted through a hand-written RK4 solver with gradient clipping, a cosine schedule and an averaged copy of the weights for validation. Healthy."""
import torch
import torch.nn as nn
from torch.nn.utils import clip_grad_norm_

EXPECT = {"framework": "plain", "kind": None, "set": "nineteenth", "written": "2026-11-27"}

DT, STEPS = 0.15, 8


class Field(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 2))
        nn.init.normal_(self.net[-1].weight, std=0.01)
        nn.init.zeros_(self.net[-1].bias)

    def forward(self, s):
        return self.net(s)


def pendulum(s):
    return torch.stack([s[:, 1], -torch.sin(s[:, 0]) - 0.1 * s[:, 1]], dim=1)


def rk4(f, s, steps):
    path = []
    for _ in range(steps):
        k1 = f(s)
        k2 = f(s + 0.5 * DT * k1)
        k3 = f(s + 0.5 * DT * k2)
        k4 = f(s + DT * k3)
        s = s + DT / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
        path.append(s)
    return torch.stack(path, dim=1)


class Average:
    def __init__(self, model, decay):
        self.decay = decay
        self.shadow = {k: v.detach().clone() for k, v in model.named_parameters()}
        self.backup = None

    @torch.no_grad()
    def update(self, model):
        for k, v in model.named_parameters():
            self.shadow[k].lerp_(v, 1 - self.decay)

    @torch.no_grad()
    def apply(self, model):
        self.backup = {k: v.clone() for k, v in model.named_parameters()}
        for k, v in model.named_parameters():
            v.copy_(self.shadow[k])

    @torch.no_grad()
    def restore(self, model):
        for k, v in model.named_parameters():
            v.copy_(self.backup[k])


def main():
    torch.manual_seed(0)
    field = Field()
    optimizer = torch.optim.Adam(field.parameters(), lr=1e-2)
    total = 240
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=total)
    average = Average(field, decay=0.95)
    s_val = torch.rand(200, 2) * 3 - 1.5
    with torch.no_grad():
        path_val = rk4(pendulum, s_val, 2 * STEPS)
    for step in range(total):
        s0 = torch.rand(64, 2) * 3 - 1.5
        with torch.no_grad():
            target = rk4(pendulum, s0, STEPS)
        loss = nn.functional.mse_loss(rk4(field, s0, STEPS), target)
        optimizer.zero_grad()
        loss.backward()
        norm = clip_grad_norm_(field.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        average.update(field)
        if (step + 1) % 40 == 0:
            average.apply(field)
            with torch.no_grad():
                val = nn.functional.mse_loss(rk4(field, s_val, 2 * STEPS), path_val)
            average.restore(field)
            print(f"step {step + 1:3d}  loss {loss.item():.5f}  norm {norm.item():.3f}  averaged val {val.item():.5f}")


if __name__ == "__main__":
    main()
