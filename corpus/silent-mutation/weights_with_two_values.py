"""A small network for sketches with binary weights, kept in full precision beside: the full weights are put back before the backward pass instead of after it, so that every layer passes its gradient on through weights that it did not compute with.

Report: https://github.com/jiecaoyu/XNOR-Net-PyTorch/issues/49 (the order binarization, forward, backward, then restore and updateBinaryGradWeight; "why need restore?"), https://github.com/jiecaoyu/XNOR-Net-PyTorch/issues/72
"""
import torch
from torch import nn
from torch.nn import functional as F

EXPECT = {
    "class": "silent-wrong", "kind": "silent-mutation", "mutating_marker": "MUTATES",
    "set": "eleventh", "written": "2026-11-23",
}


class BinOp:
    """Binary copies of the inner layers' weights, and the way back."""

    def __init__(self, model):
        layers = [m for m in model.modules() if isinstance(m, nn.Linear)]
        self.targets = [layer.weight for layer in layers[1:-1]]
        self.saved = [w.data.clone() for w in self.targets]

    def binarization(self):
        for weight, saved in zip(self.targets, self.saved):
            saved.copy_(weight.data)
            scale = weight.data.abs().mean(1, keepdim=True)
            weight.data.copy_(scale * weight.data.sign())

    def restore(self):
        for weight, saved in zip(self.targets, self.saved):
            weight.data.copy_(saved)  # MUTATES

    def update_gradients(self):
        for weight in self.targets:
            weight.grad.mul_((weight.data.abs() < 1).float())


class SketchNet(nn.Sequential):
    def __init__(self, pixels=49, width=64, classes=5):
        super().__init__(
            nn.Linear(pixels, width), nn.BatchNorm1d(width), nn.Hardtanh(),
            nn.Linear(width, width), nn.BatchNorm1d(width), nn.Hardtanh(),
            nn.Linear(width, width), nn.BatchNorm1d(width), nn.Hardtanh(),
            nn.Linear(width, classes),
        )  # fmt: skip


def sketches(strokes, count=64):
    label = torch.randint(0, len(strokes), (count,))
    return strokes[label] * (torch.rand(count, 49) > 0.2) + 0.2 * torch.randn(count, 49), label


torch.manual_seed(0)
model, strokes = SketchNet(), (torch.rand(5, 49) > 0.7).float()
bin_op = BinOp(model)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, weight_decay=1e-5)
for step in range(80):
    picture, label = sketches(strokes)
    bin_op.binarization()
    logits = model(picture)
    loss = F.cross_entropy(logits, label)
    bin_op.restore()
    optimizer.zero_grad()
    loss.backward()
    bin_op.update_gradients()
    optimizer.step()
    if step % 20 == 0:
        right = (logits.argmax(1) == label).float().mean().item()
        print(f"step {step} loss {loss.item():.4f} right {right:.2f}")
