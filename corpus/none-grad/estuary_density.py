"""The shift networks of the coupling layers sit in a plain Python list, so they are not in parameters() and the
optimizer never trains them; only the log-scale networks learn.

Report: pytorch/pytorch issues #59925 and #715; ikostrikov/pytorch-meta-optimizer issue #11 (modules in a plain list
are not registered)
"""
import math

import torch
from torch import nn

EXPECT = {
    "kind": "unregistered-parameter",
    "line": ("cut", "HERE"),
    "plain": "test nll after 600 steps 2.84 with the mistake, -0.07 with nn.ModuleList; the shift networks keep their initial values",
    "set": "twentyseventh",
    "written": "2026-11-29",
}


def mlp(n_in, n_out, width=48):
    return nn.Sequential(
        nn.Linear(n_in, width), nn.SiLU(),
        nn.Linear(width, width), nn.SiLU(),
        nn.Linear(width, n_out),
    )


class EstuaryFlow(nn.Module):
    """Density of (salinity, temperature, oxygen, depth) readings along an estuary."""

    def __init__(self, dim=4, n_layers=6):
        super().__init__()
        self.dim = dim
        half = dim // 2
        self.log_scale = nn.ModuleList([mlp(half, half) for _ in range(n_layers)])
        self.shift = [mlp(half, half) for _ in range(n_layers)]  # HERE
        self.base_log_std = nn.Parameter(torch.zeros(dim))

    def forward(self, x):
        a, b = x.chunk(2, dim=1)
        logdet = x.new_zeros(len(x))
        for s_net, t_net in zip(self.log_scale, self.shift):
            s = torch.tanh(s_net(a)) * 1.5
            b = b * torch.exp(s) + t_net(a)
            logdet = logdet + s.sum(1)
            a, b = b, a
        return torch.cat([a, b], dim=1), logdet

    def log_prob(self, x):
        z, logdet = self(x)
        std = self.base_log_std.exp()
        lp = -0.5 * (z / std) ** 2 - self.base_log_std - 0.5 * math.log(2 * math.pi)
        return lp.sum(1) + logdet


def make_readings(n, g):
    km = torch.rand(n, 1, generator=g) * 6 - 3
    sal = torch.sin(km * 1.3) + 0.08 * torch.randn(n, 1, generator=g)
    temp = 0.5 * km ** 2 / 3 - 1 + 0.08 * torch.randn(n, 1, generator=g)
    oxy = sal * temp + 0.08 * torch.randn(n, 1, generator=g)
    return torch.cat([km, sal, temp, oxy], 1)


def main():
    torch.manual_seed(11)
    g = torch.Generator().manual_seed(5)
    train, test = make_readings(4000, g), make_readings(1000, g)
    mean, std = train.mean(0), train.std(0)
    train, test = (train - mean) / std, (test - mean) / std

    flow = EstuaryFlow()
    opt = torch.optim.Adam(flow.parameters(), lr=2e-3)
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, T_max=600)

    for step in range(600):
        idx = torch.randint(0, len(train), (256,), generator=g)
        loss = -flow.log_prob(train[idx]).mean()
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(flow.parameters(), 5.0)
        opt.step()
        sched.step()
        if step % 100 == 0 or step == 599:
            with torch.no_grad():
                val = -flow.log_prob(test).mean()
            print(f"step {step:4d}  nll {loss.item():.3f}  test {val.item():.3f}")


if __name__ == "__main__":
    main()
