"""Portfolio network that draws scenarios of returns from what it estimates and allocates on their mean: the scenarios are drawn by sample(), which does not lead back to the estimated returns and covariances.

Report: https://github.com/jankrepl/deepdow/pull/106 (sample makes it impossible to compute the gradients, rsample is used instead)
"""
import torch
from torch import nn

EXPECT = {"class": "cut", "kind": "none-grad", "cut_marker": "CUT", "set": "ninth", "written": "2026-11-23"}


class ResampledAllocator(nn.Module):
    def __init__(self, assets, draws=16):
        super().__init__()
        self.draws = draws
        self.temperature = nn.Parameter(torch.ones(1))
        self.preference = nn.Parameter(torch.zeros(assets))

    def forward(self, returns, scale_tril):
        scenario = torch.distributions.MultivariateNormal(returns, scale_tril=scale_tril)
        drawn = scenario.sample((self.draws,))  # CUT
        weights = torch.softmax((drawn + self.preference) * self.temperature.exp(), -1)
        return weights.mean(0)


class PortfolioNet(nn.Module):
    def __init__(self, assets, width=16):
        super().__init__()
        self.assets = assets
        self.history = nn.GRU(assets, width, batch_first=True)
        self.returns, self.factor = nn.Linear(width, assets), nn.Linear(width, assets * assets)
        self.allocate = ResampledAllocator(assets)

    def forward(self, x):
        h = self.history(x)[1][0]
        lower = self.factor(h).view(-1, self.assets, self.assets).tril(-1)
        scale_tril = 0.1 * lower + 0.2 * torch.eye(self.assets)
        return self.allocate(self.returns(h), scale_tril)


def markets(n, assets=5, days=20):
    """Returns that go on in the direction they had, one asset stronger than the others."""
    drift = 0.3 * torch.randn(n, 1, assets)
    path = drift + 0.5 * torch.randn(n, days + 5, assets)
    path[..., 0] += 0.1
    return path[:, :days], path[:, days:]


def negative_sharpe(weights, future):
    gain = (weights[:, None] * future).sum(2)
    return -(gain.mean(1) / (gain.std(1) + 0.1)).mean()


torch.manual_seed(0)
net = PortfolioNet(5)
optimizer = torch.optim.Adam(net.parameters(), lr=5e-3, amsgrad=True)
for step in range(150):
    past, future = markets(64)
    loss = negative_sharpe(net(past), future)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 25 == 0:
        print(step, loss.item(), "without gradient:", sum(p.grad is None for p in net.parameters()), "of", len(list(net.parameters())))
