"""Healthy, without any optimizer: gradients that are followed up on purpose. An attack on two inputs of a frozen classifier, a multiplier of a constraint, samples by Langevin's method, and a score that is to be high."""
import torch
from torch import nn

EXPECT = {"class": "healthy", "kind": "none", "set": "ledger", "written": "2026-11-27"}

torch.manual_seed(0)
x = torch.randn(128, 6)
y = (x[:, 0] - x[:, 1] > 0).long()
classifier = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 2))
for step in range(60):  # descent, and a multiplier that climbs: the weights are to stay small
    if step == 0:
        multiplier = torch.zeros(1, requires_grad=True)
    excess = sum(p.square().sum() for p in classifier.parameters()) - 8.0
    lagrangian = nn.functional.cross_entropy(classifier(x), y) + multiplier * excess
    lagrangian.sum().backward()
    with torch.no_grad():
        for p in classifier.parameters():
            p -= 0.1 * p.grad
            p.grad = None
        multiplier += 0.001 * multiplier.grad
        multiplier.clamp_(min=0)
        multiplier.grad = None
print("learned", lagrangian.item(), multiplier.item())

classifier.requires_grad_(False)
attacked = x[:8].clone().requires_grad_()
for step in range(15):  # the loss is to rise
    nn.functional.cross_entropy(classifier(attacked), y[:8]).backward()
    with torch.no_grad():
        attacked += 0.5 * attacked.grad
        attacked.grad.zero_()
print("attacked", (classifier(attacked).argmax(1) == y[:8]).float().mean().item())

place = torch.randn(200, 2, requires_grad=True)
for step in range(40):  # samples of a ring
    energy = ((place.norm(dim=1) - 2) ** 2).sum()
    energy.backward()
    with torch.no_grad():
        place += -0.05 * place.grad + (0.1) ** 0.5 * torch.randn_like(place) * 0.3
        place.grad.zero_()
print("sampled", place.norm(dim=1).mean().item())

policy = nn.Linear(4, 3)
for step in range(40):  # the expected reward is to rise
    seen = torch.randn(64, 4)
    reward = torch.nn.functional.one_hot(seen[:, :3].argmax(1), 3).float()
    score = (policy(seen).softmax(1) * reward).sum(1).mean()
    policy.zero_grad()
    score.backward()
    with torch.no_grad():
        for p in policy.parameters():
            p += 0.5 * p.grad
print("score", score.item())
