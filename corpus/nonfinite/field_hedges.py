"""The masked mean divides by the number of labelled pixels, which is zero when all four crops lie outside the survey
(first at step 226, counted from 0), so loss, gradients and all weights become NaN.

Report: kind of mistake known to the author, no particular link: hand-written masked means in segmentation code
giving NaN when a batch has no labelled pixel
"""

import torch
import torch.nn as nn
import torch.nn.functional as F

EXPECT = {
    "kind": "nonfinite-forward",
    "line": ("cause", "HERE"),
    "plain": "mean IoU 0.81 until step 210, then loss NaN and IoU 0.078 to the end; with the count clamped to at least 1: loss 0.45, IoU 0.804 at step 300",
    "set": "twentyninth",
    "written": "2026-11-29",
}


VOID = 255
CLASSES = ["pasture", "crop", "hedge", "water"]


def paint_scene(size, gen):
    """An aerial photo with fields, hedges between them, a river, and land outside the survey."""
    yy, xx = torch.meshgrid(torch.arange(size), torch.arange(size), indexing="ij")
    seeds = torch.rand(40, 2, generator=gen) * size
    dist = ((yy[..., None] - seeds[:, 0]) ** 2 + (xx[..., None] - seeds[:, 1]) ** 2).float()
    two, idx = dist.topk(2, dim=-1, largest=False)
    kind = torch.randint(0, 2, (40,), generator=gen)
    label = kind[idx[..., 0]]
    label[(two[..., 1].sqrt() - two[..., 0].sqrt()) < 3.0] = 2
    river = size * 0.5 + 25 * torch.sin(xx / 30.0)
    label[(yy - river).abs() < 5] = 3
    colours = torch.tensor([[0.4, 0.7, 0.3], [0.6, 0.6, 0.3], [0.3, 0.5, 0.3], [0.3, 0.4, 0.6]])
    image = colours[label].permute(2, 0, 1)
    image = image + 0.22 * torch.randn(3, size, size, generator=gen)
    return image, label


def outside_survey(label, gen):
    label = label.clone()
    size = label.shape[0]
    yy, xx = torch.meshgrid(torch.arange(size), torch.arange(size), indexing="ij")
    label[(xx + 0.6 * yy) > size * 0.92] = VOID
    return label


class SmallUNet(nn.Module):
    def __init__(self, width=12, k=len(CLASSES)):
        super().__init__()
        self.a = self.block(3, width)
        self.b = self.block(width, 2 * width)
        self.up = nn.ConvTranspose2d(2 * width, width, 2, stride=2)
        self.c = self.block(2 * width, width)
        self.out = nn.Conv2d(width, k, 1)

    @staticmethod
    def block(i, o):
        return nn.Sequential(
            nn.Conv2d(i, o, 3, padding=1), nn.GroupNorm(4, o), nn.ReLU(),
            nn.Conv2d(o, o, 3, padding=1), nn.GroupNorm(4, o), nn.ReLU(),
        )

    def forward(self, x):
        a = self.a(x)
        b = self.b(F.max_pool2d(a, 2))
        return self.out(self.c(torch.cat([a, self.up(b)], 1)))


def crops(image, label, n, side, gen):
    top = torch.randint(0, image.shape[1] - side, (n,), generator=gen).tolist()
    left = torch.randint(0, image.shape[2] - side, (n,), generator=gen).tolist()
    xs = torch.stack([image[:, t : t + side, l : l + side] for t, l in zip(top, left)])
    ys = torch.stack([label[t : t + side, l : l + side] for t, l in zip(top, left)])
    return xs, ys


@torch.no_grad()
def mean_iou(model, image, label):
    pred = model(image.unsqueeze(0)).argmax(1)[0]
    scores = []
    for c in range(len(CLASSES)):
        both = ((pred == c) & (label == c)).sum().item()
        either = ((pred == c) | (label == c)).sum().item()
        scores.append(both / max(either, 1))
    return sum(scores) / len(scores)


def main():
    torch.manual_seed(22)
    gen = torch.Generator().manual_seed(22)
    image, label = paint_scene(224, gen)
    labelled = outside_survey(label, gen)
    test_image, test_label = paint_scene(96, gen)
    model = SmallUNet()
    opt = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=1e-4)
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, 300)
    weight = torch.tensor([1.0, 1.0, 2.0, 2.0])
    running = None
    for step in range(300):
        x, y = crops(image, labelled, 4, 24, gen)
        inside = y != VOID
        pixel = F.cross_entropy(model(x), y.masked_fill(~inside, 0), weight=weight, reduction="none")
        loss = (pixel * inside).sum() / inside.sum()  # HERE
        opt.zero_grad()
        loss.backward()
        opt.step()
        sched.step()
        running = loss.item() if running is None else 0.95 * running + 0.05 * loss.item()
        if (step + 1) % 30 == 0:
            print(f"step {step + 1} loss {running:.3f} mean IoU {mean_iou(model, test_image, test_label):.3f}")


if __name__ == "__main__":
    main()
