"""Healthy: a live model in bf16, a master copy in float32, warm restarts."""
import torch
import torch.nn.functional as F
from torch import nn

EXPECT = {
    "kind": None,
    "set": "eighteen_classes",
    "written": "2026-11-29",
}


def firings(n, gen):
    x = torch.rand(n, 4, generator=gen) * 2 - 1
    peak = torch.sin(2.5 * x[:, 0]) + x[:, 1] * x[:, 2] + 0.6 * x[:, 3] ** 2
    return x, peak[:, None]


class Kiln(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.l1 = nn.Linear(4, width)
        self.l2 = nn.Linear(width, width)
        self.l3 = nn.Linear(width, 1)

    def forward(self, x):
        x = x.to(self.l1.weight.dtype)
        h = F.silu(self.l1(x))
        h = F.silu(self.l2(h))
        return self.l3(h).float()


class MasterCopy:
    def __init__(self, model, **kw):
        self.live = list(model.parameters())
        self.master = [p.detach().float().clone().requires_grad_(True) for p in self.live]
        self.opt = torch.optim.AdamW(self.master, **kw)

    def step(self):
        for m, p in zip(self.master, self.live):
            m.grad = p.grad.float()
        self.opt.step()
        with torch.no_grad():
            for m, p in zip(self.master, self.live):
                p.copy_(m)

    def zero_grad(self):
        for p in self.live:
            p.grad = None


def main():
    torch.manual_seed(27)
    gen = torch.Generator().manual_seed(28)
    model = Kiln().bfloat16()
    opt = MasterCopy(model, lr=1e-3, weight_decay=0.0)
    sched = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(opt.opt, T_0=200, eta_min=1e-5)
    running = 0.0
    for step in range(800):
        x, y = firings(128, gen)
        opt.zero_grad()
        loss = F.mse_loss(model(x), y)
        loss.backward()
        opt.step()
        sched.step()
        running += loss.item()
        if (step + 1) % 100 == 0:
            print(f"step {step + 1} mse {running / 100:.4f} lr {sched.get_last_lr()[0]:.2e}")
            running = 0.0
    x, y = firings(3000, gen)
    with torch.no_grad():
        print(f"final test mse {F.mse_loss(model(x), y).item():.4f} variance {y.var().item():.4f}")


if __name__ == "__main__":
    main()
