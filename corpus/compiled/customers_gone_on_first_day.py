"""Churn of customers as a discrete Weibull time to event, the likelihood compiled by inductor: most leave early, so the shape falls below one; then customers who leave on the very day they came enter, whose time is zero.

Report: https://github.com/ragulpr/wtte-rnn/issues/33 (where NaN comes from in a Weibull time-to-event network, among others from zeros in the time to event)
"""
import torch
from torch import nn
from torch.nn import functional as F

EXPECT = {
    "class": "compile", "kind": "nonfinite-backward", "source_marker": "CULPRIT", "step": 60,
    "set": "tenth", "written": "2026-11-23",
}
DAYS = 12


def discrete_weibull(alpha, beta, time, churned):
    """Negative log likelihood of having left within (time, time + 1], or of being there still."""
    hazard = (time / alpha) ** beta  # CULPRIT
    hazard_next = ((time + 1.0) / alpha) ** beta
    log_likelihood = churned * torch.log(torch.expm1(hazard_next - hazard).clamp(min=1e-6)) - hazard_next
    return -log_likelihood.mean()


class ChurnRNN(nn.Module):
    def __init__(self, inputs=4, width=24):
        super().__init__()
        self.rnn, self.out = nn.GRU(inputs, width, batch_first=True), nn.Linear(width, 2)

    def forward(self, activity):
        _, state = self.rnn(activity)
        a, b = self.out(state[0]).unbind(1)
        return 5.0 * torch.exp(a), F.softplus(b + 0.5413)


def customers(n, first_day=False):
    loyal = torch.rand(n, 1)
    activity = loyal[:, :, None] + 0.3 * torch.randn(n, DAYS, 4)
    left = (1.0 + 8.0 * loyal[:, 0]) * (-torch.rand(n).clamp(min=1e-4).log()) ** (1 / 0.6)
    time = left.floor() if first_day else left.floor().clamp(min=1)
    churned = (time < 30).float()
    return activity, time.clamp(max=30), churned


torch.manual_seed(0)
model = ChurnRNN()
criterion = torch.compile(discrete_weibull, backend="inductor", dynamic=False)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for step in range(100):
    activity, time, churned = customers(64, first_day=step >= 60)
    alpha, beta = model(activity)
    loss = criterion(alpha, beta, time, churned)
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    if step % 10 == 0 or 59 <= step <= 62:
        print(step, loss.item(), "shape", beta.mean().item())
