"""Tumour classification with a hand written focal loss (custom autograd.Function).

Story: somebody replaced the focal loss by one with its own backward to save memory.  Training
begins with gamma 0 (plain cross entropy) and moves to gamma 2 after 200 steps.
Based on a public question, kuangliu/pytorch-retinanet#12 ("the term (1-p)^gamma is for
weighing only, it should not be back propagated, am I correct?" - it has to be).
"""
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler

EXPECT = {
    "class": "x", "kind": "wrong-backward", "apply_marker": "APPLY", "plain": {"outcome": "silent"},
    "set": "fourteenth", "written": "2026-11-26",
}


class SigmoidFocal(torch.autograd.Function):
    """(1 - p_t)^gamma * BCE per element, recomputes the probabilities in backward."""

    @staticmethod
    def forward(ctx, logits, targets, gamma):
        ctx.save_for_backward(logits, targets)
        ctx.gamma = gamma
        p = torch.sigmoid(logits)
        p_t = p * targets + (1 - p) * (1 - targets)
        ce = nn.functional.binary_cross_entropy_with_logits(logits, targets, reduction="none")
        return (1 - p_t) ** gamma * ce

    @staticmethod
    def backward(ctx, grad_out):
        logits, targets = ctx.saved_tensors
        p = torch.sigmoid(logits)
        p_t = p * targets + (1 - p) * (1 - targets)
        weight = (1 - p_t) ** ctx.gamma
        return grad_out * weight * (p - targets), None, None


class FocalLoss(nn.Module):
    def __init__(self, switch_at, gamma):
        super().__init__()
        self.switch_at, self.final_gamma = switch_at, gamma
        self.step = 0

    @property
    def gamma(self):
        return self.final_gamma if self.step >= self.switch_at else 0.0

    def forward(self, logits, targets):
        per_sample = SigmoidFocal.apply(logits, targets, self.gamma)  # APPLY
        return per_sample.mean()


@dataclass
class Settings:
    steps: int = 500
    batch: int = 64
    lr: float = 0.02
    seed: int = 0


class Trainer:
    def __init__(self, settings):
        self.settings = settings
        x, y = load_breast_cancer(return_X_y=True)
        x_train, x_test, y_train, y_test = train_test_split(x, y, random_state=0, stratify=y)
        scaler = StandardScaler().fit(x_train)
        as_tensor = lambda a: torch.tensor(np.asarray(a), dtype=torch.float32)
        self.train_set = as_tensor(scaler.transform(x_train)), as_tensor(y_train)
        self.test_set = as_tensor(scaler.transform(x_test)), as_tensor(y_test)
        self.model = nn.Sequential(nn.Linear(30, 24), nn.SiLU(), nn.Linear(24, 1))
        self.loss = FocalLoss(switch_at=200, gamma=2.0)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=settings.lr, momentum=0.9)

    @torch.no_grad()
    def accuracy(self):
        x, y = self.test_set
        return ((self.model(x).squeeze(1) > 0) == (y > 0.5)).float().mean().item()

    def fit(self):
        x, y = self.train_set
        for step in range(self.settings.steps):
            idx = torch.randint(len(x), (self.settings.batch,))
            self.loss.step = step
            loss = self.loss(self.model(x[idx]).squeeze(1), y[idx])
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            if step % 50 == 0:
                print(f"step {step} gamma {self.loss.gamma} loss {loss.item():.4f} test acc {self.accuracy():.3f}")


def main():
    settings = Settings()
    torch.manual_seed(settings.seed)
    Trainer(settings).fit()


if __name__ == "__main__":
    main()
