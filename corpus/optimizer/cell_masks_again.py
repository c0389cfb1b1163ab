"""Segmentation of noisy cell images with a small conv net: after the first validation the training goes on with dropout and batch statistics switched off.
Report: https://github.com/wkentaro/pytorch-fcn/issues/57 (after validation inside the epoch the model is not put back into training mode)
validate() calls model.eval() and nobody calls model.train() again: from then on the few training images are fitted
without dropout, the train loss drops below the validation loss and the validation loss ends higher than with train() restored.
"""
import torch
import torch.nn as nn
import torch.nn.functional as F

EXPECT = {
    "framework": "plain", "kind": "left-in-evaluation-mode", "line": ("cause", "OTHER"),
    "what": "validate() leaves the model in eval mode, so after step 80 dropout is off and batch norm no longer updates during training; call model.train() after validating",
    "set": "twentyfirst", "written": "2026-11-27",
}


def cells(n, size=24):
    yy, xx = torch.meshgrid(torch.arange(size), torch.arange(size), indexing="ij")
    mask = torch.zeros(n, size, size)
    for i in range(n):
        for _ in range(3):
            cy, cx = torch.randint(3, size - 3, (2,)).tolist()
            r = float(torch.randint(2, 5, (1,)))
            mask[i][((yy - cy) ** 2 + (xx - cx) ** 2) <= r * r] = 1.0
    image = 0.8 * mask + 0.7 * torch.randn(n, size, size)
    return image.unsqueeze(1), mask.unsqueeze(1)


def block(c_in, c_out):
    return nn.Sequential(nn.Conv2d(c_in, c_out, 3, padding=1), nn.BatchNorm2d(c_out), nn.ReLU(), nn.Dropout2d(0.3))


class SegNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.down = nn.Sequential(block(1, 24), nn.MaxPool2d(2), block(24, 48), nn.MaxPool2d(2), block(48, 48))
        self.up = nn.Sequential(nn.Upsample(scale_factor=4), block(48, 24), nn.Conv2d(24, 1, 3, padding=1))

    def forward(self, x):
        return self.up(self.down(x))


class Trainer:
    def __init__(self, model, train, val):
        self.model, self.train_set, self.val_set = model, train, val
        self.optimizer = torch.optim.Adam(model.parameters(), lr=4e-3)

    def validate(self):
        self.model.eval()  # OTHER
        with torch.no_grad():
            logits = self.model(self.val_set[0])
            loss = F.binary_cross_entropy_with_logits(logits, self.val_set[1])
            iou = ((logits > 0) & (self.val_set[1] > 0)).sum() / ((logits > 0) | (self.val_set[1] > 0)).sum()
        return loss.item(), iou.item()

    def fit(self, steps, val_every):
        self.model.train()
        for step in range(steps):
            pick = torch.randint(0, len(self.train_set[0]), (8,))
            loss = F.binary_cross_entropy_with_logits(self.model(self.train_set[0][pick]), self.train_set[1][pick])
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            if (step + 1) % val_every == 0:
                val_loss, iou = self.validate()  # CAUSE
                print(f"step {step + 1:3d} train {loss.item():.4f} val {val_loss:.4f} iou {iou:.3f}")


if __name__ == "__main__":
    torch.manual_seed(2)
    Trainer(SegNet(), cells(20), cells(60)).fit(steps=320, val_every=80)
