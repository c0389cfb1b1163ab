"""Softmax plus center loss, with the center loss written as an autograd Function.

Source: https://github.com/jxgu1016/MNIST_center_loss_pytorch/issues/9
"""
import torch
from torch import nn
import torch.nn.functional as F
from sklearn.datasets import load_digits

EXPECT = {
    "class": "g", "kind": "wrong-backward", "function": "CenterLossFunc", "apply_marker": "APPLY", "module": "center",
    "backward_marker": "BACKWARD", "plain": {"outcome": "silent"},
    "set": "twelfth", "written": "2026-11-25",
}


class CenterLossFunc(torch.autograd.Function):
    @staticmethod
    def forward(ctx, feature, label, centers):
        batch = centers.index_select(0, label)
        ctx.save_for_backward(feature, label, centers)
        return (feature - batch).pow(2).sum() / 2.0 / feature.size(0)

    @staticmethod
    def backward(ctx, grad_output):
        feature, label, centers = ctx.saved_tensors
        diff = feature - centers.index_select(0, label)
        grad_centers = torch.zeros_like(centers).index_add_(0, label, -diff)
        return grad_output * diff, None, grad_output * grad_centers  # BACKWARD


class CenterLoss(nn.Module):
    def __init__(self, num_classes, feat_dim):
        super().__init__()
        self.centers = nn.Parameter(torch.randn(num_classes, feat_dim))

    def forward(self, feat, label):
        return CenterLossFunc.apply(feat, label, self.centers)  # APPLY


class LeNetTiny(nn.Module):
    def __init__(self, feat_dim=4, num_classes=10):
        super().__init__()
        self.conv = nn.Sequential(nn.Conv2d(1, 12, 3, padding=1), nn.PReLU(), nn.MaxPool2d(2),
                                  nn.Conv2d(12, 24, 3, padding=1), nn.PReLU(), nn.Flatten())
        self.ip1 = nn.Linear(24 * 16, feat_dim)
        self.ip2 = nn.Linear(feat_dim, num_classes)
        self.center = CenterLoss(num_classes, feat_dim)

    def forward(self, x, y):
        feat = self.ip1(self.conv(x))
        logits = self.ip2(F.relu(feat))
        return logits, self.center(feat, y)


def train(model, x, y, steps=120, weight=0.003):
    body = [p for n, p in model.named_parameters() if not n.startswith("center.")]
    optimizer4nn = torch.optim.SGD(body, lr=0.08, momentum=0.9, weight_decay=5e-4)
    optimizer4center = torch.optim.SGD(model.center.parameters(), lr=0.5)
    for step in range(steps):
        idx = torch.randint(0, len(x), (48,))
        logits, center = model(x[idx], y[idx])
        loss = F.cross_entropy(logits, y[idx]) + weight * center
        optimizer4nn.zero_grad()
        optimizer4center.zero_grad()
        loss.backward()
        optimizer4nn.step()
        optimizer4center.step()
        if step % 20 == 0:
            acc = (logits.argmax(1) == y[idx]).float().mean().item()
            print(f"{step:4d} loss {loss.item():.4f} center {center.item():.3f} acc {acc:.2f}")


def main():
    torch.manual_seed(0)
    digits = load_digits()
    x = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16
    train(LeNetTiny(), x, torch.tensor(digits.target))


if __name__ == "__main__":
    main()
