"""Quantisation-aware training of a small CNN: float warm-up, then fake quantisation of the weights.

Source: https://github.com/Justin-Tan/generative-compression/issues/27 (same worry: eladhoffer/quantized.pytorch#5)
"""
from dataclasses import dataclass

import torch
from torch import nn
import torch.nn.functional as F
from sklearn.datasets import load_digits

EXPECT = {
    "class": "d", "kind": "zero-grad", "cut_marker": "CUT", "step": 130,
    "parameters": ["conv1.weight", "conv2.weight", "fc.weight"], "plain": {"outcome": "silent"},
    "set": "twelfth", "written": "2026-11-25",
}


@dataclass
class QConfig:
    bits: int = 4
    qat_start: int = 130
    steps: int = 260
    lr: float = 2e-3


def fake_quantize(w, bits):
    qmax = 2 ** (bits - 1) - 1
    scale = w.detach().abs().amax() / qmax
    q = torch.round(w / scale)  # CUT
    return q.clamp(-qmax - 1, qmax) * scale


class QMixin:
    bits = None

    def q(self):
        return self.weight if self.bits is None else fake_quantize(self.weight, self.bits)


class QConv2d(QMixin, nn.Conv2d):
    def forward(self, x):
        return self._conv_forward(x, self.q(), self.bias)


class QLinear(QMixin, nn.Linear):
    def forward(self, x):
        return F.linear(x, self.q(), self.bias)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = QConv2d(1, 8, 3, padding=1), QConv2d(8, 16, 3, stride=2)
        self.fc = QLinear(16 * 9, 10)

    def forward(self, x):
        x = F.relu(self.conv1(x))
        x = F.relu(self.conv2(x))
        return self.fc(x.flatten(1))


def enable_qat(model, bits):
    for m in model.modules():
        if isinstance(m, QMixin):
            m.bits = bits


def main(cfg=QConfig()):
    torch.manual_seed(0)
    digits = load_digits()
    x = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16
    y = torch.tensor(digits.target)
    model = Net()
    optimizer = torch.optim.Adam(model.parameters(), lr=cfg.lr)
    for step in range(cfg.steps):
        if step == cfg.qat_start:
            enable_qat(model, cfg.bits)
        idx = torch.randint(0, len(x), (64,))
        out = model(x[idx])
        loss = F.cross_entropy(out, y[idx])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 0:
            acc = (out.argmax(1) == y[idx]).float().mean().item()
            print(f"{step:4d} loss {loss.item():.3f} acc {acc:.3f}")


if __name__ == "__main__":
    main()
