"""requires_grad = False for "all but the head", but the name filter has a typo: every parameter is frozen."""

import torch
from torch import nn

EXPECT = {
    "kind": "none-grad",
    "line": ("cut", "CUT"),
    "or": [("grad-mode-disabled", "CUT", "cut"), ("none-grad", "FAILS", "failed")],
}


class Bert(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder, self.classifier = nn.Sequential(nn.Linear(6, 12), nn.Tanh()), nn.Linear(12, 2)

    def forward(self, x):
        return self.classifier(self.encoder(x))


def freeze(model, keep="classifer"):
    for name, p in model.named_parameters():
        if keep not in name:
            p.requires_grad = False  # CUT


torch.manual_seed(0)
model = Bert()
freeze(model)
opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
loss = nn.functional.cross_entropy(model(torch.randn(4, 6)), torch.tensor([0, 1, 0, 1]))  # CUT
loss.backward()  # FAILS
opt.step()
