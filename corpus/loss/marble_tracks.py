"""The slope of the predicted height is taken by autograd.grad without create_graph, so the slope loss is a constant for
the weights: it is added and printed but trains nothing, and only the few height readings are fitted.

Report: https://github.com/facebookresearch/DomainBed/issues/50 (create_graph missing, the gradient penalty has no
effect)
"""

import torch
import torch.nn as nn
import torch.nn.functional as F

EXPECT = {
    "kind": "loss-term-without-graph",
    "line": ("cut", "HERE"),
    "plain": "with: slope loss stays at 0.20, surface rmse 0.285, slope rmse 0.495; with create_graph=True: slope loss 0.0005, surface rmse 0.013, slope rmse 0.014",
    "set": "twentyeighth",
    "written": "2026-11-29",
}


torch.manual_seed(37)


def height(p):
    x, y = p[:, 0], p[:, 1]
    return torch.sin(1.7 * x) * torch.cos(1.3 * y) + 0.25 * x * y


def slope(p):
    p = p.clone().requires_grad_(True)
    (g,) = torch.autograd.grad(height(p).sum(), p)
    return g


class Track(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.freq = nn.Parameter(torch.randn(2, 16) * 0.8)
        self.net = nn.Sequential(
            nn.Linear(34, width),
            nn.SiLU(),
            nn.Linear(width, width),
            nn.SiLU(),
            nn.Linear(width, 1),
        )

    def forward(self, p):
        a = p @ self.freq
        return self.net(torch.cat([p, a.sin(), a.cos()], dim=-1)).squeeze(-1)


class TrackFitter:
    def __init__(self, n_heights=24, n_slopes=800, slope_weight=0.5):
        gen = torch.Generator().manual_seed(12)
        self.hp = torch.rand(n_heights, 2, generator=gen) * 4 - 2
        self.hv = height(self.hp) + 0.01 * torch.randn(n_heights, generator=gen)
        self.sp = torch.rand(n_slopes, 2, generator=gen) * 4 - 2
        self.sv = slope(self.sp) + 0.02 * torch.randn(n_slopes, 2, generator=gen)
        grid = torch.linspace(-2, 2, 30)
        self.check = torch.cartesian_prod(grid, grid)
        self.model = Track()
        self.slope_weight = slope_weight
        self.opt = torch.optim.Adam(self.model.parameters(), lr=2e-3)
        self.gen = gen

    def slope_loss(self, points, wanted):
        points = points.clone().requires_grad_(True)
        total = self.model(points).sum()
        (got,) = torch.autograd.grad(total, points)  # HERE
        return F.mse_loss(got, wanted)

    def surface_error(self):
        with torch.no_grad():
            err = self.model(self.check) - height(self.check)
        p = self.check.clone().requires_grad_(True)
        (got,) = torch.autograd.grad(self.model(p).sum(), p)
        return err.pow(2).mean().sqrt().item(), (got - slope(self.check)).pow(2).mean().sqrt().item()

    def fit(self, steps=800):
        for step in range(1, steps + 1):
            pick = torch.randint(0, len(self.sp), (96,), generator=self.gen)
            h_loss = F.mse_loss(self.model(self.hp), self.hv)
            s_loss = self.slope_loss(self.sp[pick], self.sv[pick])
            loss = h_loss + self.slope_weight * s_loss
            self.opt.zero_grad()
            loss.backward()
            self.opt.step()
            if step % 100 == 0:
                h_err, s_err = self.surface_error()
                print(f"step {step:4d} loss {loss.item():.4f} height {h_loss.item():.5f} slope {s_loss.item():.4f} "
                      f"| surface rmse {h_err:.3f} slope rmse {s_err:.3f}")
        return self.model


if __name__ == "__main__":
    TrackFitter().fit()
