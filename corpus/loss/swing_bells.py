"""After a warm-up of 150 steps the oscillator residual joins the loss as a plain number (.item()), so the physics has
no gradient and the network only interpolates the few measured points.

Report: PyTorch forum and Stack Overflow: loss terms added through .item() have no effect on training (PINN residual,
regularisation)
"""
import torch
import torch.nn.functional as F
from torch import nn

EXPECT = {
    "kind": "loss-term-without-graph",
    "line": ("cut", "HERE"),
    "plain": "mse over the span 0.269, residual 47.4; 0.00006 and 0.064 without .item()",
    "set": "eighteen_classes",
    "written": "2026-11-29",
}


DAMP, OMEGA = 0.4, 4.0
WARMUP, STEPS = 150, 1000


def bell(t):
    w = (OMEGA ** 2 - DAMP ** 2) ** 0.5
    return torch.exp(-DAMP * t) * torch.cos(w * t)


class BellNet(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(1, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 1))
        self.register_buffer("span", torch.tensor(2.0))

    def forward(self, t):
        return self.net(4.0 * (t / self.span - 0.5))


class PhysicsFit:
    def __init__(self, model, weight=0.01):
        self.model = model
        self.weight = weight
        self.t_data = torch.linspace(0, 0.8, 9)[:, None]
        self.y_data = bell(self.t_data)
        self.t_phys = torch.linspace(0, 2.0, 40)[:, None]
        self.opt = torch.optim.Adam(model.parameters(), lr=4e-3)

    def residual(self):
        t = self.t_phys.clone().requires_grad_(True)
        y = self.model(t)
        dy, = torch.autograd.grad(y.sum(), t, create_graph=True)
        d2y, = torch.autograd.grad(dy.sum(), t, create_graph=True)
        r = d2y + 2 * DAMP * dy + OMEGA ** 2 * y
        return r.pow(2).mean()

    def run(self):
        for step in range(STEPS):
            self.opt.zero_grad()
            loss = F.mse_loss(self.model(self.t_data), self.y_data)
            if step >= WARMUP:
                physics = self.residual()
                loss = loss + self.weight * physics.item()  # HERE
            loss.backward()
            self.opt.step()
            if (step + 1) % 200 == 0:
                print(f"step {step + 1:5d} loss {loss.item():.5f}")


def main():
    torch.manual_seed(12)
    fit = PhysicsFit(BellNet())
    fit.run()
    t = torch.linspace(0, 2.0, 200)[:, None]
    with torch.no_grad():
        err = F.mse_loss(fit.model(t), bell(t)).item()
    print(f"final residual {fit.residual().item():.4f} mse over the whole span {err:.5f}")


if __name__ == "__main__":
    main()
