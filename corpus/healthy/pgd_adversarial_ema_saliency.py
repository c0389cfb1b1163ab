"""Adversarial training on digits with PGD inputs, an EMA model and saliency maps in between.

Right because: the attack asks autograd only for the gradient of the *inputs* (parameters get
none from it), the perturbation is detached before the training pass, the model is in eval
mode during the attack and back in train mode after; the EMA copy is never optimized; the
saliency maps at evaluation use autograd.grad on inputs of the EMA model.
"""
import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

EXPECT = {
    "class": "healthy", "kind": "none", "plain": {"outcome": "silent"},
    "set": "fifteenth", "written": "2026-11-26",
}


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
                                  nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2))
        self.head = nn.Sequential(nn.Flatten(), nn.Dropout(0.1), nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 10))

    def forward(self, x):
        return self.head(self.conv(x))


def pgd(net, x, y, eps, steps=3):
    was_training = net.training
    net.eval()
    delta = torch.empty_like(x).uniform_(-eps, eps)
    for _ in range(steps):
        delta.requires_grad_(True)
        loss = F.cross_entropy(net(x + delta), y)
        grad, = torch.autograd.grad(loss, delta)
        with torch.no_grad():
            delta = (delta + 0.5 * eps * grad.sign()).clamp_(-eps, eps)
            delta = (x + delta).clamp_(0, 1) - x
    net.train(was_training)
    return (x + delta).detach()


def accuracy(net, x, y):
    with torch.inference_mode():
        return (net(x).argmax(1) == y).float().mean().item()


def saliency(net, x, y):
    x = x.clone().requires_grad_(True)
    chosen = net(x).gather(1, y[:, None]).sum()
    grad, = torch.autograd.grad(chosen, x)
    return (grad * x.detach()).abs().flatten(1)


def concentration(s):
    """Share of the saliency carried by the ten strongest pixels."""
    return (s.topk(10, dim=1).values.sum(1) / s.sum(1).clamp_min(1e-9)).mean().item()


def main():
    torch.manual_seed(0)
    d = load_digits()
    x, y = torch.tensor(d.images, dtype=torch.float32).unsqueeze(1) / 16, torch.tensor(d.target)
    xtr, ytr, xte, yte = x[:1400], y[:1400], x[1400:], y[1400:]
    net = Net()
    ema = AveragedModel(net, multi_avg_fn=get_ema_multi_avg_fn(0.98), use_buffers=True)
    ema.eval()
    opt = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9, weight_decay=5e-4)
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, 400)
    for step in range(400):
        eps = 0.12 * min(1.0, step / 200)              # curriculum: the attack grows
        idx = torch.randint(0, 1400, (64,))
        xb, yb = xtr[idx], ytr[idx]
        adv = pgd(net, xb, yb, eps)
        clean_logits, adv_logits = net(torch.cat([xb, adv])).chunk(2)
        loss = 0.5 * F.cross_entropy(clean_logits, yb) + 0.5 * F.cross_entropy(adv_logits, yb)
        opt.zero_grad()
        loss.backward()
        opt.step()
        sched.step()
        ema.update_parameters(net)
        if step % 80 == 79:
            robust = accuracy(ema, pgd(ema, xte, yte, 0.12, steps=5), yte)
            print(f"step {step} eps {eps:.2f} loss {loss.item():.4f} clean {accuracy(ema, xte, yte):.3f} robust {robust:.3f} "
                  f"saliency top-10 share {concentration(saliency(ema, xte[:64], yte[:64])):.2f}")


if __name__ == "__main__":
    main()
