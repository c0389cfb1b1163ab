"""Trains a two-headed lesion segmenter with a coarse cross-entropy head and a fine Dice head; the fine head never moves and its masks stay useless.

Report: https://github.com/qubvel-org/segmentation_models.pytorch/pull/611 (a threshold in the Dice loss gives "element 0 of tensors does not require grad"; "fixed" by returning torch.tensor((x > threshold).type(x.dtype), requires_grad=True); never merged)
What is seen: fine.weight.grad is None in all steps, its masks stay near a Dice score of 0.3 or fall, with the
probabilities they reach 0.92.
"""
import torch
import torch.nn as nn
import torch.nn.functional as F

EXPECT = {
    "framework": "plain", "kind": "none-grad", "line": ("cut", "CAUSE"),
    "what": "the Dice loss thresholds the prediction and wraps it in a new tensor with requires_grad=True, which cuts the graph, so the fine head gets no gradient; use the probabilities themselves",
    "set": "nineteenth", "written": "2026-11-27",
}


class DiceLoss(nn.Module):
    def __init__(self, threshold=None, eps=1.0):
        super().__init__()
        self.threshold, self.eps = threshold, eps

    def forward(self, logits, target):
        pr = torch.sigmoid(logits)
        if self.threshold is not None:
            pr = (pr > self.threshold).type(pr.dtype).clone().detach().requires_grad_(True)  # CAUSE
        tp = (pr * target).sum((1, 2, 3))
        return 1 - ((2 * tp + self.eps) / (pr.sum((1, 2, 3)) + target.sum((1, 2, 3)) + self.eps)).mean()


class Segmenter(nn.Module):
    def __init__(self, ch=12):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(1, ch, 3, padding=1), nn.ReLU(), nn.Conv2d(ch, ch, 3, padding=1), nn.ReLU())
        self.coarse = nn.Conv2d(ch, 1, 1)
        self.fine = nn.Conv2d(ch, 1, 3, padding=1)

    def forward(self, x):
        f = self.stem(x)
        return self.coarse(F.avg_pool2d(f, 4)), self.fine(f)


def lesions(n, gen, size=24):
    grid = torch.arange(size).float()
    c = torch.rand(n, 2, generator=gen) * 14 + 5
    r = torch.rand(n, 1, 1, generator=gen) * 3 + 2.5
    d = ((grid[None, :, None] - c[:, 0, None, None]) ** 2 + (grid[None, None, :] - c[:, 1, None, None]) ** 2).sqrt()
    mask = (d < r).float()[:, None]
    return mask * 0.8 + 0.4 * torch.randn(n, 1, size, size, generator=gen), mask


def score(logits, mask):
    p = (logits > 0).float()
    return (2 * (p * mask).sum() / (p.sum() + mask.sum())).item()


gen = torch.Generator().manual_seed(7)
torch.manual_seed(7)
train_x, train_m = lesions(320, gen)
val_x, val_m = lesions(64, gen)
model = Segmenter()
dice_loss = DiceLoss(threshold=0.5)
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=100, gamma=0.3)

for step in range(200):
    idx = torch.randint(0, len(train_x), (16,), generator=gen)
    coarse, fine = model(train_x[idx])
    small = F.max_pool2d(train_m[idx], 4)
    loss_coarse = F.binary_cross_entropy_with_logits(coarse, small)
    loss_fine = dice_loss(fine, train_m[idx])
    loss = loss_fine + 0.5 * loss_coarse
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    scheduler.step()
    if step % 40 == 0 or step == 199:
        with torch.no_grad():
            vc, vf = model(val_x)
        print(f"step {step:3d} coarse {loss_coarse.item():.4f} dice loss {loss_fine.item():.4f} "
              f"val coarse {score(vc, F.max_pool2d(val_m, 4)):.3f} val fine {score(vf, val_m):.3f}")
