"""Daily load curves of a town are forecast by two heads that are fitted to the data and drawn together. All curves have one large
part in common, so after training the rows of a batch differ by a few percent; nothing is wrong."""
import torch
import torch.nn as nn
import torch.nn.functional as F

EXPECT = {
    "class": "healthy: two heads with a graph are compared, and their rows become alike because the data are",
    "kind": "none",
    "what": "Both heads learn from data; their agreement is a second term.",
    "set": "ledger",
    "written": "2026-11-27",
}

torch.manual_seed(4)
torch.set_num_threads(1)
HOURS = torch.linspace(0, 6.28, 24)


class TwoHeads(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(7, 48), nn.Tanh())
        self.mean, self.trend = nn.Linear(48, 24), nn.Sequential(nn.Linear(48, 24), nn.Tanh(), nn.Linear(24, 24))

    def forward(self, x):
        hidden = self.body(x)
        return self.mean(hidden), self.trend(hidden)


model = TwoHeads()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for step in range(300):
    x = torch.randn(64, 7)
    load = 3 + HOURS.sin() + 0.05 * x[:, :1] * HOURS.cos()
    one, other = model(x)
    agreement = 1 - F.cosine_similarity(one, other, dim=1).mean()
    loss = F.mse_loss(one, load) + F.mse_loss(other, load) + 0.5 * agreement
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 60 == 59:
        print(f"step {step}  loss {loss.item():.4f}")
