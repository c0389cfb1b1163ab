"""Segmenting overlapping discs and boxes in small noisy images with a little U-Net in half precision.

After https://github.com/milesial/Pytorch-UNet/issues/468 (the training loop of a U-Net).
"""
import numpy as np
import torch
from torch import nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

EXPECT = {
    "kind": "clipping-without-effect",
    "line": ("cause", "CLIP"),
    "plain": "the loss hardly moves and the dice score stays near zero",
    "set": "twentythird",
    "written": "2026-11-28",
}

SIDE = 32


def make_images(n, seed):
    rng = np.random.default_rng(seed)
    yy, xx = np.mgrid[0:SIDE, 0:SIDE]
    images = rng.normal(0, 0.35, size=(n, 1, SIDE, SIDE)).astype(np.float32)
    masks = np.zeros((n, 1, SIDE, SIDE), dtype=np.float32)
    for i in range(n):
        cx, cy, r = rng.uniform(8, 24), rng.uniform(8, 24), rng.uniform(4, 8)
        disc = (xx - cx) ** 2 + (yy - cy) ** 2 < r * r
        x0, y0 = rng.integers(2, 20, size=2)
        box = (xx >= x0) & (xx < x0 + 9) & (yy >= y0) & (yy < y0 + 9)
        images[i, 0] += 0.9 * disc + 0.9 * box
        masks[i, 0] = disc
    return torch.tensor(images), torch.tensor(masks)


def double(cin, cout):
    return nn.Sequential(nn.Conv2d(cin, cout, 3, padding=1), nn.GroupNorm(4, cout), nn.ReLU(),
                         nn.Conv2d(cout, cout, 3, padding=1), nn.GroupNorm(4, cout), nn.ReLU())


class LittleUNet(nn.Module):
    def __init__(self, base=8):
        super().__init__()
        self.down1 = double(1, base)
        self.down2 = double(base, 2 * base)
        self.middle = double(2 * base, 4 * base)
        self.up2 = nn.ConvTranspose2d(4 * base, 2 * base, 2, stride=2)
        self.merge2 = double(4 * base, 2 * base)
        self.up1 = nn.ConvTranspose2d(2 * base, base, 2, stride=2)
        self.merge1 = double(2 * base, base)
        self.head = nn.Conv2d(base, 1, 1)

    def forward(self, x):
        a = self.down1(x)
        b = self.down2(F.max_pool2d(a, 2))
        c = self.middle(F.max_pool2d(b, 2))
        b = self.merge2(torch.cat([self.up2(c), b], dim=1))
        a = self.merge1(torch.cat([self.up1(b), a], dim=1))
        return self.head(a)


def dice(prob, mask, eps=1.0):
    inter = (prob * mask).sum(dim=(1, 2, 3))
    return ((2 * inter + eps) / (prob.sum(dim=(1, 2, 3)) + mask.sum(dim=(1, 2, 3)) + eps)).mean()


@torch.no_grad()
def evaluate(net, images, masks):
    net.eval()
    score = dice((net(images).sigmoid() > 0.5).float(), masks).item()
    net.train()
    return score


class HalfTrainer:
    def __init__(self, net, lr=0.1, max_norm=1.0):
        self.net, self.max_norm = net, max_norm
        self.optimizer = torch.optim.SGD(net.parameters(), lr=lr, momentum=0.9, nesterov=True)
        self.scaler = torch.amp.GradScaler("cpu", init_scale=2.0 ** 13, growth_interval=100)

    def step(self, image, mask):
        self.optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            logits = self.net(image)
        logits = logits.float()
        loss = F.binary_cross_entropy_with_logits(logits, mask) + 1 - dice(logits.sigmoid(), mask)
        self.scaler.scale(loss).backward()
        nn.utils.clip_grad_norm_(self.net.parameters(), self.max_norm)  # CLIP
        self.scaler.step(self.optimizer)
        self.scaler.update()
        return loss.item()


def main():
    torch.manual_seed(1)
    torch.set_num_threads(1)
    images, masks = make_images(480, seed=7)
    held = make_images(120, seed=8)
    loader = DataLoader(TensorDataset(images, masks), batch_size=16, shuffle=True)
    net = LittleUNet()
    trainer = HalfTrainer(net)
    for epoch in range(5):
        losses = [trainer.step(image, mask) for image, mask in loader]
        print(f"epoch {epoch + 1}  loss {np.mean(losses):.4f}  dice on held-out images {evaluate(net, *held):.3f}")


if __name__ == "__main__":
    main()
