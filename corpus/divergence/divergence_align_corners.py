"""Segmentation network ported between versions: one of the decoder's upsampling layers aligns its corners, the other network's does not.

Report: https://github.com/pytorch/pytorch/issues/10604 (also speedinghzl/Pytorch-Deeplab issue 19)
"""
import torch
from torch import nn

EXPECT = {"class": "divergence", "kind": "first-divergence", "module": "up.1", "set": "second", "written": "2026-11-22"}


class Decoder(nn.Module):
    def __init__(self, align):
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, stride=4, padding=1)
        self.up = nn.ModuleList(nn.Upsample(scale_factor=2, mode="bilinear", align_corners=a) for a in align)
        self.conv = nn.ModuleList(nn.Conv2d(8, 8, 3, padding=1) for _ in align)
        self.out = nn.Conv2d(8, 2, 1)

    def forward(self, x):
        x = self.stem(x).relu()
        for up, conv in zip(self.up, self.conv):
            x = conv(up(x)).relu()
        return self.out(x)


torch.manual_seed(0)
original, port = Decoder([True, True]), Decoder([True, False])
port.load_state_dict(original.state_dict())
opts = [torch.optim.SGD(net.parameters(), 1e-2) for net in (original, port)]
for step in range(3):
    x, y = torch.randn(2, 3, 16, 16), torch.randint(0, 2, (2, 16, 16))
    for net, opt in zip((original, port), opts):
        loss = nn.functional.cross_entropy(net(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        print(step, loss.item())
