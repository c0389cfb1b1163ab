"""Road scene segmentation on short clips, void pixels masked out; after 90 frames every weight is NaN.

Report: https://github.com/ultralytics/ultralytics/issues/25096 (the segmentation loss is NaN when the whole batch
consists of ignore pixels, 0/0 over zero valid pixels, and training is poisoned from that step on)

One frame of the clip is fully void (label 255). The masked mean divides by the number of valid pixels, 0/0 gives a
NaN gradient and from step 93 on all weights are NaN; pixel accuracy falls from 0.957 to
0.514, the rate of class 0 (without the bad frame 0.99 at the end).
"""
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

EXPECT = {
    "framework": "plain", "kind": "nonfinite-forward", "line": ("cause", "CAUSE"),
    "what": "A frame without a single valid pixel makes the masked mean 0/0, so loss and gradients are NaN and the optimizer writes NaN into every weight; clamp the denominator or skip such frames.",
    "set": "twentieth", "written": "2026-11-27",
}

VOID = 255
CLASSES = 3


class Clip(Dataset):
    """Sky above, road below with a moving car; a border of void pixels as the camera hood."""

    def __init__(self, frames, seed, lens_cap=()):
        gen = torch.Generator().manual_seed(seed)
        self.items = []
        for t in range(frames):
            label = torch.zeros(24, 24, dtype=torch.long)
            horizon = 10 + int(torch.randint(0, 4, (1,), generator=gen))
            label[horizon:] = 1
            x = (3 * t) % 18
            label[horizon + 2:horizon + 6, x:x + 5] = 2
            colour = torch.tensor([[0.2, 0.4, 0.9], [0.4, 0.4, 0.4], [0.8, 0.2, 0.3]])
            image = colour[label].permute(2, 0, 1) + 0.15 * torch.randn(3, 24, 24, generator=gen)
            label[-2:] = VOID
            if t in lens_cap:
                image, label = torch.zeros_like(image), torch.full_like(label, VOID)
            self.items.append((image, label))

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        return self.items[i]


def masked_ce(logits, label):
    valid = label != VOID
    per_pixel = F.cross_entropy(logits, label.masked_fill(~valid, 0), reduction="none")
    return (per_pixel * valid).sum() / valid.sum()  # CAUSE


def pixel_accuracy(net, loader):
    net.eval()
    hit = total = 0
    with torch.no_grad():
        for image, label in loader:
            valid = label != VOID
            hit += ((net(image).argmax(1) == label) & valid).sum().item()
            total += valid.sum().item()
    net.train()
    return hit / total


torch.manual_seed(0)
net = nn.Sequential(
    nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(),
    nn.Conv2d(16, 16, 3, padding=2, dilation=2), nn.ReLU(),
    nn.Conv2d(16, CLASSES, 1),
)
train_loader = DataLoader(Clip(160, seed=1, lens_cap=(93,)), batch_size=1)
val_loader = DataLoader(Clip(20, seed=2), batch_size=4)
optimizer = torch.optim.Adam(net.parameters(), lr=3e-3)
running = 0.0
for step, (image, label) in enumerate(train_loader):
    loss = masked_ce(net(image), label)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()  # OTHER
    running = 0.9 * running + 0.1 * loss.item()
    if step % 20 == 19:
        print(f"step {step + 1:3d} loss {running:.3f} val pixel accuracy {pixel_accuracy(net, val_loader):.3f}")
