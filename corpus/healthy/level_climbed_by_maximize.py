"""A likelihood is maximized with maximize=True, and a decay whose factor ends at zero and stays above it."""
import torch
from torch import nn

EXPECT = {"kind": "none", "set": "ledger", "written": "2026-11-29"}


def main():
    torch.manual_seed(0)
    mean, log_scale = nn.Parameter(torch.zeros(3)), nn.Parameter(torch.zeros(3))
    optimizer = torch.optim.SGD([mean, log_scale], lr=0.05, maximize=True)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: max(0.0, 1 - step / 120))
    for _ in range(120):
        x = 1.5 + 0.7 * torch.randn(64, 3)
        likelihood = torch.distributions.Normal(mean, log_scale.exp()).log_prob(x).mean()
        optimizer.zero_grad()
        likelihood.backward()
        optimizer.step()
        schedule.step()


if __name__ == "__main__":
    main()
