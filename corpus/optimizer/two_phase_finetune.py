"""Linear probing first, then full fine-tuning with a second optimizer.

Source: https://github.com/pytorch/pytorch/issues/47175 (what an optimizer's zero_grad covers: udacity/P1_Facial_Keypoints#3)
"""
import torch
from torch import nn
import torch.nn.functional as F
from sklearn.datasets import load_digits

EXPECT = {
    "class": "k", "kind": "gradient-not-cleared", "stepping_marker": "STEPPING", "step": 221,
    "parameters": ["backbone.0.weight", "backbone.0.bias", "backbone.2.weight", "backbone.2.bias"],
    "plain": {"outcome": "silent"},
    "set": "twelfth", "written": "2026-11-25",
}


class Classifier(nn.Module):
    def __init__(self, backbone, width, n_classes):
        super().__init__()
        self.backbone, self.head = backbone, nn.Linear(width, n_classes)

    def forward(self, x):
        return self.head(self.backbone(x))


@torch.no_grad()
def init_from_pca(layer, x):
    _, _, v = torch.pca_lowrank(x, q=layer.out_features)
    layer.weight.copy_(v.t() * 2)
    layer.bias.copy_(-layer.weight @ x.mean(0))


class FineTuner:
    def __init__(self, model, unfreeze_at=220):
        self.model, self.unfreeze_at = model, unfreeze_at
        model.backbone.requires_grad_(False)
        self.optimizer = torch.optim.Adam(model.head.parameters(), lr=5e-3)
        self.full_optimizer = None

    def unfreeze(self):
        self.model.backbone.requires_grad_(True)
        self.full_optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-3)

    def training_step(self, i, x, y):
        if i == self.unfreeze_at:
            self.unfreeze()
        self.optimizer.zero_grad()
        logits = self.model(x)
        loss = F.cross_entropy(logits, y)
        loss.backward()
        if self.full_optimizer is not None:
            self.full_optimizer.step()  # STEPPING
        else:
            self.optimizer.step()
        return loss.item(), (logits.argmax(1) == y).float().mean().item()


def main():
    torch.manual_seed(0)
    digits = load_digits()
    x, y = torch.tensor(digits.data, dtype=torch.float32) / 16, torch.tensor(digits.target)
    backbone = nn.Sequential(nn.Linear(64, 48), nn.ReLU(), nn.Linear(48, 32), nn.ReLU())
    init_from_pca(backbone[0], x)
    tuner = FineTuner(Classifier(backbone, 32, 10))
    for i in range(400):
        idx = torch.randint(0, len(x), (64,))
        loss, acc = tuner.training_step(i, x[idx], y[idx])
        if i % 40 == 0:
            print(f"iter {i} loss {loss:.3f} acc {acc:.3f}")


if __name__ == "__main__":
    main()
