"""From epoch 3 on the saliency monitor runs between backward and step and ends with net.zero_grad(), which throws the
batch's gradients away, so the network no longer changes.

Report: PyTorch forum threads on computing saliency maps during training; meta-pytorch/opacus issue #93 (zero_grad
erases accumulated gradients)
"""
import numpy as np
import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn

EXPECT = {
    "kind": "gradient-not-used",
    "line": ("cleared", "HERE"),
    "plain": "test accuracy 0.407, loss 2.24 (training loss constant from epoch 3 on); 0.882, loss 0.51 when the saliency uses torch.autograd.grad and does not clear",
    "set": "eighteen_classes",
    "written": "2026-11-29",
}


class Scanner(nn.Module):
    def __init__(self):
        super().__init__()
        self.c1 = nn.Conv2d(1, 12, 3, padding=1)
        self.c2 = nn.Conv2d(12, 24, 3, padding=1)
        self.fc = nn.Linear(24 * 4, 10)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.c1(x)), 2)
        x = F.max_pool2d(F.relu(self.c2(x)), 2)
        return self.fc(x.flatten(1))


class Trainer:
    def __init__(self, net, lr=0.03, saliency_from=3):
        self.net = net
        self.opt = torch.optim.SGD(net.parameters(), lr=lr, momentum=0.5)
        self.saliency_from = saliency_from
        self.focus = []

    def saliency(self, x, y):
        probe = x[:8].clone().requires_grad_(True)
        score = self.net(probe).gather(1, y[:8, None]).sum()
        score.backward()
        heat = probe.grad.abs().mean((0, 1))
        self.net.zero_grad()  # HERE
        return heat

    def fit(self, x, y, epochs=12, batch=64):
        for epoch in range(epochs):
            order = torch.randperm(len(x))
            seen, total = 0, 0.0
            for k in range(0, len(x) - batch + 1, batch):
                idx = order[k:k + batch]
                self.opt.zero_grad()
                loss = F.cross_entropy(self.net(x[idx]), y[idx])
                loss.backward()
                if epoch >= self.saliency_from:
                    heat = self.saliency(x[idx], y[idx])
                    self.focus.append((heat[2:6, 2:6].sum() / heat.sum()).item())
                self.opt.step()
                total += loss.item() * len(idx)
                seen += len(idx)
            focus = np.mean(self.focus[-20:]) if self.focus else float("nan")
            print(f"epoch {epoch:2d} loss {total / seen:.4f} centre focus {focus:.3f}")


def main():
    torch.manual_seed(3)
    data = load_digits()
    xs = torch.tensor(data.images, dtype=torch.float32)[:, None] / 16.0
    ys = torch.tensor(data.target)
    xtr, xte, ytr, yte = train_test_split(xs, ys, test_size=0.25, random_state=0)
    net = Scanner()
    Trainer(net).fit(xtr, ytr)
    with torch.no_grad():
        logits = net(xte)
    print(f"final test accuracy {(logits.argmax(1) == yte).float().mean().item():.4f}"
          f"  loss {F.cross_entropy(logits, yte).item():.4f}")


if __name__ == "__main__":
    main()
