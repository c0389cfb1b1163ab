"""Trains a small U-Net on synthetic cell images with mixed precision; the mask loss hardly moves because the clipped gradients are those still multiplied by the loss scale.

Report: https://github.com/milesial/Pytorch-UNet/issues/468 (train.py clips the gradients before they are unscaled; scaler.unscale_(optimizer) has to come first; fixed in pull request 470)
What is seen: the gradients are about 65536 times too large when they are clipped to norm 1, then divided by 65536, so every SGD update has
a norm near 1e-6. The Dice score stays near its start, with unscale_ before the clipping it goes above 0.8.
"""
import torch
import torch.nn as nn
import torch.nn.functional as F

EXPECT = {
    "framework": "plain", "kind": "clipping-without-effect", "line": ("cause", "CAUSE"),
    "what": "the gradients are clipped while they still carry the loss scale; scaler.unscale_(optimizer) must be called before clip_grad_norm_, otherwise each update is tens of thousands of times too small",
    "set": "nineteenth", "written": "2026-11-27",
}


def make_cells(n, size=24, gen=None):
    yy, xx = torch.meshgrid(torch.arange(size), torch.arange(size), indexing="ij")
    images, masks = [], []
    for _ in range(n):
        mask = torch.zeros(size, size)
        for _ in range(int(torch.randint(1, 4, (1,), generator=gen))):
            cy, cx = torch.randint(4, size - 4, (2,), generator=gen).tolist()
            r = int(torch.randint(2, 5, (1,), generator=gen))
            mask[((yy - cy) ** 2 + (xx - cx) ** 2) <= r * r] = 1.0
        images.append(mask + 0.5 * torch.randn(size, size, generator=gen))
        masks.append(mask)
    return torch.stack(images)[:, None], torch.stack(masks)[:, None]


def block(cin, cout):
    return nn.Sequential(nn.Conv2d(cin, cout, 3, padding=1), nn.BatchNorm2d(cout), nn.ReLU())


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.inc = block(1, 8)
        self.down = block(8, 16)
        self.up = block(24, 8)
        self.outc = nn.Conv2d(8, 1, 1)

    def forward(self, x):
        a = self.inc(x)
        b = self.down(F.max_pool2d(a, 2))
        b = F.interpolate(b, scale_factor=2.0)
        return self.outc(self.up(torch.cat([a, b], 1)))


def dice(logits, masks):
    p = (logits > 0).float()
    return (2 * (p * masks).sum() / (p.sum() + masks.sum() + 1e-6)).item()


def main():
    gen = torch.Generator().manual_seed(0)
    torch.manual_seed(1)
    x, y = make_cells(256, gen=gen)
    xv, yv = make_cells(64, gen=gen)
    model = UNet()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    scaler = torch.amp.GradScaler("cpu")
    step = 0
    for epoch in range(8):
        model.train()
        for idx in torch.randperm(len(x), generator=gen).split(16):
            optimizer.zero_grad(set_to_none=True)
            with torch.autocast("cpu", dtype=torch.bfloat16):
                logits = model(x[idx])
                loss = F.binary_cross_entropy_with_logits(logits, y[idx])
            scaler.scale(loss).backward()  # OTHER
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)  # CAUSE
            scaler.step(optimizer)
            scaler.update()
            step += 1
        model.eval()
        with torch.no_grad():
            out = model(xv)
        print(f"epoch {epoch} step {step} loss {loss.item():.4f} val dice {dice(out, yv):.3f}")


if __name__ == "__main__":
    main()
