"""Heights of tides from six gauges. Each gauge's level is embedded alone, and a layer norm over its one feature comes before the ReLU."""
import torch
import torch.nn.functional as F
from torch import nn

EXPECT = {
    "class": "layer norm over one feature", "framework": "plain", "kind": "zero-grad", "line": ("cut", "HERE"),
    "set": "ledger", "written": "2026-11-29",
}


class Gauges(nn.Module):
    def __init__(self, gauges=6):
        super().__init__()
        self.level, self.norm = nn.Linear(3, 1), nn.LayerNorm(1)
        self.wind = nn.Linear(2, 12)
        self.head = nn.Sequential(nn.Linear(gauges + 12, 24), nn.ReLU(), nn.Linear(24, 1))

    def forward(self, levels, wind):
        h = self.norm(self.level(levels)).squeeze(2)  # HERE
        return self.head(torch.cat([h, torch.tanh(self.wind(wind))], 1)).squeeze(1)


def main():
    torch.manual_seed(2)
    model = Gauges()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for step in range(1, 301):
        levels, wind = torch.randn(48, 6, 3), torch.randn(48, 2)
        tide = levels[:, :, 0].mean(1) + wind[:, 0] * 0.5
        loss = F.mse_loss(model(levels, wind), tide)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 50 == 0:
            print(f"step {step} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
