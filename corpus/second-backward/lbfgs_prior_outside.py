"""Curve fit by LBFGS: the smoothness prior is computed once per step outside of the closure, which is called several times."""
import torch
from torch import nn

EXPECT = {
    "class": "late-second-backward", "kind": "second-backward", "bridge_marker": "REUSED", "step": 56, "counted": "optimizer steps",
    "set": "late", "written": "2026-11-22",
}


class Splines(nn.Module):
    def __init__(self, knots=14):
        super().__init__()
        self.heights, self.log_width = nn.Parameter(torch.zeros(knots)), nn.Parameter(torch.tensor(-2.0))
        self.register_buffer("centres", torch.linspace(-1, 1, knots))

    def forward(self, x):
        return torch.exp(-((x[:, None] - self.centres) / self.log_width.exp()).square()) @ self.heights

    def roughness(self):
        return self.heights.diff().diff().square().sum()


def observations(n):
    x = 2 * torch.rand(n) - 1
    return x, torch.sin(4 * x) + 0.3 * x + 0.2 * torch.randn(n)


torch.manual_seed(0)
model = Splines()
opt = torch.optim.LBFGS(model.parameters(), lr=0.05, max_iter=4, history_size=6)
x, y = observations(200)
x_test, y_test = observations(100)
weight, best, patience = 0.0, float("inf"), 0
for step in range(150):
    prior = weight * model.roughness() if weight > 0 else 0.0

    def closure():
        opt.zero_grad()
        misfit = (model(x[:120]) - y[:120]).square().mean()
        loss = misfit + prior  # REUSED
        loss.backward()
        return loss

    loss = opt.step(closure)
    with torch.no_grad():
        test = (model(x_test) - y_test).square().mean().item()
    patience = 0 if test < best else patience + 1
    best = min(best, test)
    if patience >= 20 and weight == 0:  # the fit gets worse on new data
        weight = 1e-3
    if step % 10 == 0:
        print(step, round(loss.item(), 5), round(test, 5))
