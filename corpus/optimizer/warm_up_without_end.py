"""Depth of a well from eight readings, with a warm-up by hand that has no end: the rate is that of twenty steps times the
step, and goes on. Two hundred steps are well; then the loss grows until it overflows."""
import torch
from torch import nn

EXPECT = {
    "class": "schedule raises the rate",
    "kind": "learning-rate-raised",
    "line": ["cause", "HERE"],
    "set": "ledger",
    "written": "2026-11-29",
}

torch.manual_seed(0)
torch.set_num_threads(1)
RATE, WARM_UP = 0.02, 20
readings = torch.randn(2000, 8)
depth = torch.sin(readings[:, :1]) + 0.3 * readings[:, 1:2]
model = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=RATE, momentum=0.9)

for step in range(900):
    for group in optimizer.param_groups:
        group["lr"] = RATE * (step + 1) / WARM_UP  # HERE
    rows = torch.randint(0, 2000, (64,))
    loss = nn.functional.mse_loss(model(readings[rows]), depth[rows])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 100 == 0:
        print(f"step {step}  loss {loss.item():.4g}")
