"""A Bayesian regression draws its weights with torch.normal: their means learn from the divergence to the prior only."""
import torch
from sklearn.datasets import load_diabetes
from torch import nn
from torch.distributions import Normal, kl_divergence
from torch.nn import functional as F

EXPECT = {
    "kind": "sample-without-gradient", "line": ("cut", "DRAWN"), "set": "ledger", "written": "2026-11-29",
    "plain": "the weights go to zero, and the error stays at that of the mean",
}


class BayesianLinear(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.mean = nn.Parameter(0.1 * torch.randn(outputs, inputs))
        self.raw = nn.Parameter(torch.full((outputs, inputs), -3.0))
        self.bias = nn.Parameter(torch.zeros(outputs))

    def forward(self, x):
        weight = torch.normal(self.mean, F.softplus(self.raw))  # DRAWN
        return F.linear(x, weight, self.bias)

    def divergence(self):
        return kl_divergence(Normal(self.mean, F.softplus(self.raw)), Normal(0.0, 1.0)).sum()


def main():
    torch.manual_seed(0)
    patients, progress = load_diabetes(return_X_y=True)
    patients = torch.tensor(patients, dtype=torch.float32) * 20
    progress = torch.tensor(progress, dtype=torch.float32).unsqueeze(1) / 100
    layer = BayesianLinear(patients.shape[1], 1)
    optimizer = torch.optim.Adam(layer.parameters(), lr=1e-2)
    for epoch in range(20):
        for batch in torch.randperm(len(patients)).split(64):
            optimizer.zero_grad()
            error = F.mse_loss(layer(patients[batch]), progress[batch])
            (error + layer.divergence() / len(patients)).backward()
            optimizer.step()
    print(f"error {error.item():.3f}, largest weight {layer.mean.abs().max().item():.3f}")


if __name__ == "__main__":
    main()
