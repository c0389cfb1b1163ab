"""Features are cached under torch.inference_mode() and then fed to a head that is trained: saving them fails."""

import torch
from torch import nn

EXPECT = {"kind": "grad-mode-disabled", "line": ("cut", "CUT")}


def main():
    torch.manual_seed(0)
    backbone, head = nn.Sequential(nn.Linear(6, 12), nn.ReLU()), nn.Linear(12, 2)
    images = torch.randn(20, 6)
    with torch.inference_mode():  # CUT
        features = backbone(images)  # CUT
    opt = torch.optim.SGD(head.parameters(), lr=0.1)
    for i in range(0, 20, 5):
        loss = nn.functional.cross_entropy(head(features[i : i + 5]), torch.randint(0, 2, (5,)))
        opt.zero_grad()
        loss.backward()
        opt.step()


if __name__ == "__main__":
    main()
