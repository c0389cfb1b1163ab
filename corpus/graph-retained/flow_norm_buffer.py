"""Normalising flow with batch norm between its layers: the running mean is updated in place with statistics that carry the graph.

Report: https://github.com/bayesiains/nflows/issues/10 (fixed in pull 11; also facebookresearch/synsin pull 20)
"""
import torch
from torch import nn

EXPECT = {
    "class": "retention", "kind": "graph-retained", "holding_marker": "HOLDS", "module": "norm",
    "set": "second", "written": "2026-11-22",
}


class FlowNorm(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.log_gamma, self.beta = nn.Parameter(torch.zeros(dim)), nn.Parameter(torch.zeros(dim))
        self.register_buffer("mean", torch.zeros(dim))

    def forward(self, x):
        if self.training:
            mean, var = x.mean(0), x.var(0, unbiased=False)
            self.mean.mul_(0.9).add_(0.1 * mean)  # HOLDS
        else:
            mean, var = self.mean, torch.ones_like(self.mean)
        y = self.log_gamma.exp() * (x - mean) * torch.rsqrt(var + 1e-5) + self.beta
        return y, (self.log_gamma - 0.5 * torch.log(var + 1e-5)).sum()


class Flow(nn.Module):
    def __init__(self):
        super().__init__()
        self.net, self.norm = nn.Sequential(nn.Linear(1, 16), nn.Tanh(), nn.Linear(16, 2)), FlowNorm(2)

    def log_prob(self, x):
        a, b = x[:, :1], x[:, 1:]
        shift, scale = self.net(a).chunk(2, 1)
        y = torch.cat([a, b * scale.tanh().exp() + shift], 1)
        y, norm_det = self.norm(y)
        return -0.5 * y.square().sum(1) + scale.tanh()[:, 0] + norm_det


torch.manual_seed(0)
flow = Flow()
opt = torch.optim.Adam(flow.parameters(), 1e-3)
for step in range(60):
    loss = -flow.log_prob(torch.randn(64, 2)).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
print("reproduced", flow.norm.mean.requires_grad)
