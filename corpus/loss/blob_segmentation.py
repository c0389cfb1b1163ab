"""Small blobs on noisy 24x24 images, BCE plus Dice; the Dice part never gives the network a gradient.

Report: https://github.com/qubvel-org/segmentation_models.pytorch/pull/611 (Dice loss with a threshold:
"element 0 of tensors does not require grad"; the author wraps the thresholded tensor with requires_grad=True)

The Dice term is computed from a thresholded mask that was turned into a fresh leaf, so the error message is gone
but only the weak BCE term trains the net: the Dice loss goes up to 0.94 in the middle of training and the validation
dice ends near 0.55; with the soft probabilities it is above 0.8 after 48 steps and 0.9 at the end.
"""
import torch
from torch import nn
import torch.nn.functional as F

EXPECT = {
    "framework": "plain", "kind": "loss-term-without-graph", "line": ("cut", "CAUSE"),
    "what": "The Dice loss is taken from a thresholded mask, which cuts the graph (requires_grad_ on the new leaf only silences the error), so the Dice term gives no gradient to the network; use the soft probabilities.",
    "set": "twentieth", "written": "2026-11-27",
}

torch.manual_seed(3)


def make_images(n, size=24):
    yy, xx = torch.meshgrid(torch.arange(size), torch.arange(size), indexing="ij")
    centre = torch.randint(5, size - 5, (n, 2))
    radius = torch.randint(2, 4, (n, 1, 1))
    dist = (yy - centre[:, 0, None, None]) ** 2 + (xx - centre[:, 1, None, None]) ** 2
    mask = (dist <= radius ** 2).float()
    image = 0.9 * mask + 0.5 * torch.randn(n, size, size)
    return image[:, None], mask[:, None]


class DiceLoss(nn.Module):
    def __init__(self, threshold=None, smooth=1.0):
        super().__init__()
        self.threshold = threshold
        self.smooth = smooth

    def forward(self, logits, target):
        probs = torch.sigmoid(logits)
        if self.threshold is not None:
            probs = (probs > self.threshold).float().requires_grad_()  # CAUSE
        inter = (probs * target).sum(dim=(1, 2, 3))
        total = probs.sum(dim=(1, 2, 3)) + target.sum(dim=(1, 2, 3))
        return (1 - (2 * inter + self.smooth) / (total + self.smooth)).mean()


def conv_block(cin, cout):
    return nn.Sequential(nn.Conv2d(cin, cout, 3, padding=1), nn.BatchNorm2d(cout), nn.ReLU())


class TinyUNet(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.enc1 = conv_block(1, width)
        self.enc2 = conv_block(width, 2 * width)
        self.dec = conv_block(3 * width, width)
        self.head = nn.Conv2d(width, 1, 1)

    def forward(self, x):
        a = self.enc1(x)
        b = self.enc2(F.max_pool2d(a, 2))
        up = F.interpolate(b, scale_factor=2)
        return self.head(self.dec(torch.cat([a, up], 1)))


def dice_score(model, x, y):
    model.eval()
    with torch.no_grad():
        pred = (torch.sigmoid(model(x)) > 0.5).float()
    model.train()
    return (2 * (pred * y).sum() / (pred.sum() + y.sum() + 1e-6)).item()


def main():
    x, y = make_images(256)
    xv, yv = make_images(64)
    model = TinyUNet()
    bce = nn.BCEWithLogitsLoss()
    dice = DiceLoss(threshold=0.5)  # OTHER
    opt = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    step = 0
    for epoch in range(7):
        for idx in torch.randperm(len(x)).split(16):
            logits = model(x[idx])
            loss_b, loss_d = bce(logits, y[idx]), dice(logits, y[idx])
            loss = 0.1 * loss_b + loss_d
            opt.zero_grad()
            loss.backward()
            opt.step()
            step += 1
        print(f"epoch {epoch} step {step} bce {loss_b.item():.3f} dice loss {loss_d.item():.3f} "
              f"val dice {dice_score(model, xv, yv):.3f}")


if __name__ == "__main__":
    main()
