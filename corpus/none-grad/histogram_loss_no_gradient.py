"""Low-light enhancement: the tone curve is trained by a histogram loss alone, and counting into bins has no gradient.

Report: https://github.com/albrateanu/LYT-Net/issues/16 (and 17)
"""
import torch
from torch import nn

EXPECT = {
    "class": "cut", "kind": "none-grad", "cut_marker": "CUT", "parameters": ["tone.weight", "tone.bias"],
    "set": "second", "written": "2026-11-22",
}


class Enhance(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.tone = nn.Conv2d(1, 1, 3, padding=1), nn.Linear(1, 1)

    def forward(self, x):
        image = x + 0.1 * self.body(x).tanh()
        toned = torch.sigmoid(self.tone(image.detach()[..., None]))[..., 0]
        return image, toned


def histogram_loss(pred, target, bins=16):
    a = torch.histc(pred, bins, 0.0, 1.0)  # CUT
    b = torch.histc(target, bins, 0.0, 1.0)
    return (a / a.sum() - b / b.sum()).abs().mean()


torch.manual_seed(0)
net = Enhance()
opt = torch.optim.Adam(net.parameters(), 1e-3)
for step in range(30):
    dark = torch.rand(2, 1, 8, 8) * 0.4
    image, toned = net(dark)
    loss = nn.functional.l1_loss(image, dark) + 0.05 * histogram_loss(toned, dark * 2.5)
    opt.zero_grad()
    loss.backward()
    opt.step()
print("reproduced", net.tone.weight.grad is None)
