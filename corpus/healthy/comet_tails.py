"""Healthy: a GradScaler on the CPU: unscale, then clip with new parameters."""
import torch
import torch.nn.functional as F
from torch import nn

EXPECT = {
    "kind": None,
    "set": "eighteen_classes",
    "written": "2026-11-29",
}


def tails(n, gen):
    t = torch.linspace(0, 1, 20)
    slope = torch.randn(n, 1, generator=gen)
    curve = torch.randn(n, 1, generator=gen)
    y = slope * t + curve * t ** 2 + 0.05 * torch.randn(n, 20, generator=gen)
    target = torch.cat([slope, curve], 1)
    wild = torch.rand(n, generator=gen) < 0.005
    return y, torch.where(wild[:, None], target * 20.0, target)


class TailNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.lift = nn.Linear(1, 16)
        self.rnn = nn.GRU(16, 32, batch_first=True)
        self.head = nn.Linear(32, 2)
        self.scale = nn.Parameter(torch.ones(2), requires_grad=False)

    def forward(self, y):
        return self.head(self.rnn(torch.tanh(self.lift(y[..., None])))[0][:, -1]) * self.scale


class Fitter:
    def __init__(self, net, max_norm=1.0):
        self.net = net
        self.opt = torch.optim.Adam((p for p in net.parameters() if p.requires_grad), lr=5e-3)
        self.scaler = torch.amp.GradScaler("cpu", init_scale=2.0 ** 12, growth_interval=100)
        self.max_norm = max_norm
        self.clipped = 0

    def groups(self):
        return (p for g in self.opt.param_groups for p in g["params"])

    def step(self, y, target):
        self.opt.zero_grad(set_to_none=True)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            out = self.net(y)
        loss = F.mse_loss(out.float(), target)
        self.scaler.scale(loss).backward()
        self.scaler.unscale_(self.opt)
        norm = nn.utils.clip_grad_norm_(self.groups(), self.max_norm)
        self.clipped += int(norm > self.max_norm)
        self.scaler.step(self.opt)
        self.scaler.update()
        return loss.item()


def main():
    torch.manual_seed(23)
    gen = torch.Generator().manual_seed(24)
    fitter = Fitter(TailNet())
    losses = []
    for step in range(500):
        losses.append(fitter.step(*tails(32, gen)))
        if (step + 1) % 100 == 0:
            print(f"step {step + 1} median {sorted(losses[-100:])[50]:.4f} clipped {fitter.clipped}")
    y, target = tails(2000, gen)
    with torch.no_grad():
        err = (fitter.net(y) - target).pow(2).mean(1).median().item()
    print(f"final median squared error {err:.4f}")


if __name__ == "__main__":
    main()
