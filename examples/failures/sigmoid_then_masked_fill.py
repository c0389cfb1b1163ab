"""Detection head: sigmoid scores of ignored anchors are filled in place."""

import torch
from torch import nn

EXPECT = {"kind": "inplace", "line": ("mutated", "MUTATES"), "module": "head"}


class Head(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.cls, self.box = nn.Conv2d(c, 1, 1), nn.Conv2d(c, 4, 1)

    def forward(self, feature, ignore):
        score = torch.sigmoid(self.cls(feature)).flatten(1)  # SAVES
        score.masked_fill_(ignore, 0.0)  # MUTATES
        return score, self.box(feature).flatten(2)


class Detector(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone, self.head = nn.Conv2d(3, 6, 3, padding=1), Head(6)

    def forward(self, image, ignore):
        return self.head(self.backbone(image).relu(), ignore)


def main():
    torch.manual_seed(0)
    model = Detector()
    score, box = model(torch.rand(2, 3, 5, 5), torch.rand(2, 25) < 0.3)
    loss = nn.functional.binary_cross_entropy(score, torch.zeros(2, 25)) + box.abs().mean()
    loss.backward()


if __name__ == "__main__":
    main()
