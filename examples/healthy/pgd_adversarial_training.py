"""Healthy: PGD adversarial training; inputs are leaves, autograd.grad for the attack, model in eval for it."""

import torch
import torch.nn.functional as F
from torch import nn

EXPECT = {"kind": None}


def pgd(model, x, y, eps=0.1, alpha=0.05, steps=3):
    was = model.training
    model.eval()
    adv = (x + torch.empty_like(x).uniform_(-eps, eps)).clamp(0, 1).detach()
    for _ in range(steps):
        adv.requires_grad_(True)
        grad = torch.autograd.grad(F.cross_entropy(model(adv), y), adv)[0]
        adv = adv.detach() + alpha * grad.sign()
        adv = (x + (adv - x).clamp(-eps, eps)).clamp(0, 1).detach()
    model.train(was)
    return adv


def fgsm(model, x, y, eps):
    x = x.clone().requires_grad_()
    F.cross_entropy(model(x), y).backward()
    return (x + eps * x.grad.sign()).detach()


def main():
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(1, 6, 3), nn.BatchNorm2d(6), nn.ReLU(inplace=True), nn.Flatten(), nn.Linear(6 * 36, 3)
    )
    opt = torch.optim.SGD(net.parameters(), lr=0.05)
    for i in range(6):
        x, y = torch.rand(8, 1, 8, 8), torch.randint(0, 3, (8,))
        adv = pgd(net, x, y) if i % 2 else fgsm(net, x, y, 0.1)
        loss = F.cross_entropy(net(adv), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
    print(loss.item())


if __name__ == "__main__":
    main()
