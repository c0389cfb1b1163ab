"""Augmentation inside the forward: patches of the feature map are erased in place after the next conv has used it."""

import torch
from torch import nn

EXPECT = {"kind": "inplace", "line": ("mutated", "MUTATES")}


def erase(maps, size=2):
    flat = maps.view(-1, *maps.shape[-2:])
    for k in range(len(flat)):
        i = int(torch.randint(0, maps.shape[-1] - size, ()))
        plane = flat[k]
        plane[i : i + size, i : i + size] = 0  # MUTATES
    return maps


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem, self.side, self.main, self.fc = (
            nn.Conv2d(1, 4, 3),
            nn.Conv2d(4, 4, 1),
            nn.Conv2d(4, 4, 3),
            nn.Linear(8, 2),
        )

    def forward(self, x):
        h = self.stem(x)
        side = self.side(h)  # SAVES
        main = self.main(erase(h))
        return self.fc(torch.cat([side.mean((2, 3)), main.mean((2, 3))], 1))


torch.manual_seed(0)
loss = nn.functional.cross_entropy(Net()(torch.rand(3, 1, 9, 9)), torch.tensor([0, 1, 1]))
loss.backward()
