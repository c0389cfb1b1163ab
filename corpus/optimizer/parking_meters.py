"""Parking meters, by a recurrent model. The gradient is clipped after the optimizer has stepped, and bursts late in the series blow the model up (VGraphRNN/VGRNN issue 4, awslabs/graphstorm issue 1366)."""
import math

import torch
from torch import nn

EXPECT = {
    "class": "clipping after the step, line of the step", "framework": "plain", "kind": "clipping-without-effect", "line": ("stepped", "HERE"),
    "set": "twentyeighth", "written": "2026-11-29",
}


def hourly_counts(hours, seed):
    g = torch.Generator().manual_seed(seed)
    t = torch.arange(hours)
    base = 1.6 + 0.9 * torch.sin(2 * math.pi * t / 24) + 0.4 * torch.sin(2 * math.pi * t / 168)
    rate = base.exp()
    for start in range(5200, hours, 1900):
        rate[start:start + 10] *= 60
    return torch.poisson(rate, generator=g)


class MeterModel(nn.Module):
    def __init__(self, hidden=32):
        super().__init__()
        self.cell = nn.GRU(3, hidden, batch_first=True)
        self.rate = nn.Linear(hidden, 1)

    def forward(self, x, state=None):
        out, state = self.cell(x, state)
        return self.rate(out).squeeze(-1), state


def features(counts):
    t = torch.arange(len(counts), dtype=torch.float32)
    return torch.stack([
        torch.log1p(counts) / 3,
        torch.sin(2 * math.pi * t / 24),
        torch.cos(2 * math.pi * t / 24),
    ], dim=1)


class Forecaster:
    def __init__(self, window=24, lr=0.02, limit=1.0):
        self.model = MeterModel()
        self.window = window
        self.limit = limit
        self.opt = torch.optim.SGD(self.model.parameters(), lr=lr, momentum=0.8)
        self.loss = nn.PoissonNLLLoss(log_input=True)

    def fit(self, counts):
        x = features(counts)
        state = None
        recent = []
        starts = range(0, len(counts) - self.window - 1, self.window)
        for step, s in enumerate(starts):
            xs = x[s:s + self.window].unsqueeze(0)
            ys = counts[s + 1:s + self.window + 1].unsqueeze(0)
            log_rate, state = self.model(xs, state)
            state = state.detach()
            loss = self.loss(log_rate, ys)
            self.opt.zero_grad()
            loss.backward()
            self.opt.step()  # HERE
            nn.utils.clip_grad_norm_(self.model.parameters(), self.limit)
            recent.append(loss.item())
            if step % 50 == 0:
                tail = recent[-50:]
                print(f"day {step:4d}  loss {sum(tail) / len(tail):.3f}")
        return recent

    @torch.no_grad()
    def evaluate(self, counts):
        x = features(counts)
        log_rate, _ = self.model(x[:-1].unsqueeze(0))
        quiet = counts[1:] < 60
        error = (log_rate.exp()[0] - counts[1:])[quiet].abs().mean()
        return error.item()


def main():
    torch.manual_seed(2)
    counts = hourly_counts(24 * 560, seed=4)
    fresh = hourly_counts(24 * 60, seed=9)
    forecaster = Forecaster()
    forecaster.fit(counts)
    naive = (fresh[1:] - fresh[1:].mean()).abs().mean().item()
    print(f"mean absolute error {forecaster.evaluate(fresh):.3f}  (predicting the mean: {naive:.3f})")


if __name__ == "__main__":
    main()
