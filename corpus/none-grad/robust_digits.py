"""Robust digits classifier: plain training first, then FGSM with a random start.

Story: after 200 steps the config turns adversarial training on.  At the first adversarial
batch the script stops with "'NoneType' object has no attribute 'sign'" (and PyTorch warns that
.grad of a tensor that is not a leaf is read).
Based on posts on FGSM code (for example blog.51cto.com/u_16213575/7796448 and
haomeiwen.com/subject/ookkactx.html: "only the gradients of leaf tensors are kept").
"""
import logging
from dataclasses import dataclass

import torch
from torch import nn
import torch.nn.functional as F
from sklearn.datasets import load_digits

EXPECT = {
    "class": "x", "kind": "nonleaf-grad", "cut_marker": "CUT", "plain": {"outcome": "error", "error": "'NoneType' object has no attribute 'sign'"},
    "set": "fourteenth", "written": "2026-11-26",
}

log = logging.getLogger("robust")


@dataclass
class RobustConfig:
    steps: int = 500
    adversarial_from: int = 200
    epsilon: float = 0.15
    batch: int = 64
    lr: float = 2e-3


class SmallConv(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(),
            nn.Conv2d(16, 32, 3, stride=2, padding=1), nn.ReLU(),
        )
        self.classify = nn.Linear(32 * 16, 10)

    def forward(self, x):
        return self.classify(self.features(x).flatten(1))


class Fgsm:
    def __init__(self, model, epsilon):
        self.model, self.epsilon = model, epsilon

    def random_start(self, x):
        noise = torch.rand_like(x).mul_(2).sub_(1).requires_grad_()
        return noise * self.epsilon  # CUT

    def __call__(self, x, y):
        delta = self.random_start(x)
        loss = F.cross_entropy(self.model((x + delta).clamp(0, 1)), y)
        loss.backward()
        step = 1.25 * self.epsilon * delta.grad.sign()
        delta = (delta.detach() + step).clamp(-self.epsilon, self.epsilon)
        return (x + delta).clamp(0, 1)


def sample_batches(cfg):
    data = load_digits()
    images = torch.tensor(data.images, dtype=torch.float32).unsqueeze(1) / 16
    labels = torch.tensor(data.target)
    for _ in range(cfg.steps):
        idx = torch.randint(len(images), (cfg.batch,))
        yield images[idx], labels[idx]


def main():
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s")
    torch.manual_seed(0)
    cfg = RobustConfig()
    model = SmallConv()
    attack = Fgsm(model, cfg.epsilon)
    optimizer = torch.optim.Adam(model.parameters(), lr=cfg.lr)
    for step, (x, y) in enumerate(sample_batches(cfg)):
        if step >= cfg.adversarial_from:
            x = attack(x, y)
        optimizer.zero_grad()
        logits = model(x)
        loss = F.cross_entropy(logits, y)
        loss.backward()
        optimizer.step()
        if step % 50 == 0:
            log.info("step %d loss %.3f acc %.2f", step, loss.item(), (logits.argmax(1) == y).float().mean())


if __name__ == "__main__":
    main()
