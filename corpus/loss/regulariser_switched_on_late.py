"""A classifier with an orthogonality penalty that begins at step 150, after a warm-up. It is computed from the weights'
data, since somebody wanted to keep it out of the autocast graph, and pulls at nothing."""
import torch
import torch.nn as nn
import torch.nn.functional as F

EXPECT = {
    "class": "loss term without a graph",
    "kind": "loss-term-without-graph",
    "line": ["cut", "cause"],
    "set": "ledger",
    "written": "2026-11-27",
}

torch.manual_seed(4)
torch.set_num_threads(1)


def orthogonality(model):
    total = torch.zeros(())
    for module in model.modules():
        if isinstance(module, nn.Linear):
            weight = module.weight.data  # <-- cause
            gram = weight @ weight.t()
            total = total + (gram - torch.eye(len(gram))).square().sum()
    return total


model = nn.Sequential(nn.Linear(10, 24), nn.ReLU(), nn.Linear(24, 24), nn.ReLU(), nn.Linear(24, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
centres = 2 * torch.randn(4, 10)
for step in range(400):
    y = torch.randint(0, 4, (64,))
    loss = F.cross_entropy(model(centres[y] + torch.randn(64, 10)), y)
    if step >= 150:
        loss = loss + 1e-3 * orthogonality(model)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(f"loss {loss.item():.4f}, orthogonality {orthogonality(model).item():.2f}")
