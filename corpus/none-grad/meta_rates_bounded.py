"""Meta-learning with learned inner rates: as soon as one of them passes the bound, the inner update takes the clamped ``.data`` and no rate is learned any more."""
import torch
from torch import nn

EXPECT = {
    "class": "late-cut", "kind": "none-grad", "cut_marker": "CUT", "parameters": ["rates"], "step": 461,
    "set": "late", "written": "2026-11-22",
}


class Regressor(nn.Module):
    def __init__(self, hidden=16):
        super().__init__()
        self.w1, self.b1 = nn.Parameter(torch.randn(1, hidden)), nn.Parameter(torch.zeros(hidden))
        self.w2, self.b2 = nn.Parameter(torch.randn(hidden, 1) / 4), nn.Parameter(torch.zeros(1))
        self.rates = nn.Parameter(torch.full((4,), 0.02))

    def start(self):
        return [self.w1, self.b1, self.w2, self.b2]

    def predict(self, x, weights):
        w1, b1, w2, b2 = weights
        return torch.tanh(x @ w1 + b1) @ w2 + b2


def adapt(model, x, y, bound):
    weights = model.start()
    inner = nn.functional.mse_loss(model.predict(x, weights), y)
    gradients = torch.autograd.grad(inner, weights, create_graph=True)
    rates = model.rates
    if rates.max() > bound:
        rates = rates.data.clamp(0.0, bound)  # CUT
    return [w - r * g for w, g, r in zip(weights, gradients, rates)]


torch.manual_seed(0)
model = Regressor()
opt = torch.optim.Adam(model.parameters(), 1e-3)
for step in range(700):
    loss = 0.0
    for task in range(2):
        height, phase = 1 + torch.rand(1), 3 * torch.rand(1)
        x = 4 * torch.rand(20, 1) - 2
        y = height * torch.sin(x + phase)
        fast = adapt(model, x[:10], y[:10], bound=0.17)
        loss = loss + nn.functional.mse_loss(model.predict(x[10:], fast), y[10:]) / 2
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 50 == 0:
        print(step, round(loss.item(), 4), [round(r, 3) for r in model.rates.tolist()])
