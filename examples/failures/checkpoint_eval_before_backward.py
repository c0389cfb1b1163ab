"""A sample is generated (model.eval()) between the forward and the backward of a checkpointed model."""

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint_sequential

EXPECT = {"kind": "checkpoint-mismatch", "line": ("cause", "CULPRIT")}


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Linear(6, 16)
        self.trunk = nn.Sequential(*[nn.Sequential(nn.Linear(16, 16), nn.GELU(), nn.Dropout(0.2)) for _ in range(4)])
        self.head = nn.Linear(16, 2)

    def forward(self, x):
        h = self.stem(x)
        if self.training:
            h = checkpoint_sequential(self.trunk, 2, h, use_reentrant=False)  # REGION CULPRIT
        else:
            h = self.trunk(h)  # CULPRIT
        return self.head(h)


@torch.no_grad()
def preview(model, x):
    model.eval()  # CULPRIT
    return model(x).argmax(1)


def train():
    torch.manual_seed(0)
    model = Net().train()
    opt = torch.optim.Adam(model.parameters())
    for step in range(4):
        x, y = torch.randn(8, 6), torch.randint(0, 2, (8,))
        loss = nn.functional.cross_entropy(model(x), y)
        if step % 2 == 0:
            preview(model, x[:2])
        opt.zero_grad()
        loss.backward()
        opt.step()
        model.train()


train()
