"""Small CNN whose rate is lowered on a plateau: after the warm-up the loss is averaged for this with its graph, the average of one step leads back to all others."""
import torch
from torch import nn

EXPECT = {
    "class": "late-retention", "kind": "graph-retained", "holding_marker": "HOLDS", "step": 289,
    "set": "late", "written": "2026-11-22",
}


def shapes(n):
    y = torch.randint(0, 3, (n,))
    x = 0.6 * torch.randn(n, 1, 9, 9)
    for row, label in zip(x, y):
        if label == 0:
            row[0, 4] += 1
        elif label == 1:
            row[0, :, 4] += 1
        else:
            row[0].diagonal().add_(1)
    return x, y


torch.manual_seed(0)
net = nn.Sequential(
    nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 8, 3), nn.ReLU(), nn.Flatten(),
    nn.Linear(8, 3),
)
opt = torch.optim.SGD(net.parameters(), 1e-3, momentum=0.9, nesterov=True)
warmup, average, best, since = 289, None, float("inf"), 0
for step in range(520):
    for group in opt.param_groups:
        if step < warmup:
            group["lr"] = 2e-2 * (step + 1) / warmup
    x, y = shapes(12)
    loss = nn.functional.cross_entropy(net(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step >= warmup:
        average = loss if average is None else 0.95 * average + 0.05 * loss  # HOLDS
        since = 0 if average < best else since + 1
        best = min(best, average.item())
        if since > 60:
            since = 0
            for group in opt.param_groups:
                group["lr"] *= 0.3
    if step % 50 == 0:
        print(step, round(loss.item(), 4), opt.param_groups[0]["lr"])
