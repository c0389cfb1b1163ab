"""A step size is sought for sensors' calibration curves: every trial makes a new small network, differentiates with create_graph=True to know the curvature along the gradient, and throws the network away; parameters and gradients keep each other alive.

Report: https://github.com/pytorch/pytorch/issues/4661 (backward(create_graph=True) should raise a warning for potential memory leak), https://github.com/amirgholami/PyHessian/issues/25 ("will create a reference cycle between the parameter and its gradient")
"""
import warnings

import torch
from torch import nn

EXPECT = {
    "class": "leak", "kind": "reference-cycle", "holding_marker": "HOLDS",
    "set": "eleventh", "written": "2026-11-23",
}
warnings.filterwarnings("ignore", message=".*reference cycle.*")


class CalibrationCurve(nn.Module):
    def __init__(self, width=128):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(1, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 1))

    def forward(self, voltage):
        return self.net(voltage)


class Sensor:
    def __init__(self):
        self.gain, self.bend = 1 + 0.3 * torch.rand(()), 0.5 * torch.rand(())

    def measure(self, count=64):
        voltage = 2 * torch.rand(count, 1) - 1
        return voltage, self.gain * voltage + self.bend * voltage**3 + 0.01 * torch.randn(count, 1)


def curvature_along_gradient(model, voltage, pressure):
    """g H g / g g for the loss at hand."""
    loss = (model(voltage) - pressure).pow(2).mean()
    loss.backward(create_graph=True)  # HOLDS
    gradients = [p.grad for p in model.parameters()]
    square = sum(g.pow(2).sum() for g in gradients)
    product = torch.autograd.grad(0.5 * square, list(model.parameters()))
    bend = sum((g * h).sum() for g, h in zip(gradients, product))
    return loss.item(), (bend / square).item()


def trial(sensor):
    model = CalibrationCurve()
    voltage, pressure = sensor.measure()
    loss, curvature = curvature_along_gradient(model, voltage, pressure)
    return loss, 1.0 / max(abs(curvature), 1e-3)


torch.manual_seed(0)
rates = []
for number in range(60):
    loss, rate = trial(Sensor())
    rates.append(rate)
    if number % 10 == 0:
        print(f"trial {number} loss {loss:.4f} rate {rate:.3f}")
rate = sorted(rates)[len(rates) // 4]
sensor, model = Sensor(), CalibrationCurve()
optimizer = torch.optim.SGD(model.parameters(), lr=min(rate, 0.1))
for step in range(60):
    voltage, pressure = sensor.measure()
    loss = (model(voltage) - pressure).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(f"calibrated with rate {rate:.3f}: loss {loss.item():.5f}")
