"""Pruning in rounds: each round takes a larger mask and registers a hook that keeps the gradient of pruned weights at zero.
The hooks of earlier rounds stay, and multiply by ones that the last mask has too."""
import torch
import torch.nn as nn

EXPECT = {"class": "healthy", "kind": "none", "set": "ledger", "written": "2026-11-27"}

torch.manual_seed(5)
torch.set_num_threads(1)
model = nn.Sequential(nn.Linear(12, 40), nn.ReLU(), nn.Linear(40, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)


def prune(layer, share):
    with torch.no_grad():
        bound = layer.weight.abs().flatten().kthvalue(int(share * layer.weight.numel())).values
        mask = (layer.weight.abs() > bound).float()
        layer.weight.mul_(mask)
    layer.weight.register_hook(lambda grad, mask=mask: grad * mask)


for n in range(300):
    if n % 50 == 49:
        prune(model[0], 0.12 * (n // 50 + 1))
    x = torch.randn(128, 12)
    loss = (model(x) - x[:, :2].sum(1, keepdim=True)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(f"loss {loss.item():.4f}, {(model[0].weight == 0).float().mean().item():.0%} pruned")
