"""A network for the yield of wells is pruned after 130 steps: the smallest weights are set to zero once, and their
gradients are masked in each step. Adam's running averages still hold the gradients of before: the weights come back."""
import torch
import torch.nn as nn

EXPECT = {
    "class": "rows frozen by zero gradients move",
    "kind": "frozen-parameter-moves",
    "line": ["zeroed", "cause"],
    "what": "The gradients of pruned weights are zero, but Adam's momentum of the steps before moves them away from zero.",
    "symptom": "no error; the network is not sparse at the end",
    "set": "ledger",
    "written": "2026-11-28",
}

torch.manual_seed(5)
torch.set_num_threads(1)
logs, law = torch.randn(1500, 12), torch.randn(12)
yields = (logs @ law).tanh() + 0.3 * logs[:, 0] * logs[:, 1]

net = nn.Sequential(nn.Linear(12, 64), nn.SiLU(), nn.Linear(64, 64), nn.SiLU(), nn.Linear(64, 1))
optimizer = torch.optim.Adam(net.parameters(), lr=2e-3)
masks = {}


@torch.no_grad()
def prune(share):
    for name, weight in net.named_parameters():
        if weight.dim() == 2 and weight.shape[0] > 1:
            bound = weight.abs().flatten().kthvalue(int(share * weight.numel())).values
            masks[name] = (weight.abs() > bound).float()
            weight.mul_(masks[name])


for step in range(420):
    if step == 130:
        prune(0.6)
    rows = torch.randint(0, len(logs), (64,))
    loss = (net(logs[rows]).squeeze(1) - yields[rows]).square().mean()
    optimizer.zero_grad()
    loss.backward()
    for name, weight in net.named_parameters():
        if name in masks:
            weight.grad.mul_(masks[name])  # <-- cause
    optimizer.step()
    if step % 70 == 69:
        zeros = sum(int((p == 0).sum()) for p in net.parameters())
        print(f"step {step}  loss {loss.item():.3f}  weights of zero: {zeros}")
