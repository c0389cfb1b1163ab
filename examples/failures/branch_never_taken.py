"""A typo in the config: mode "bilinear" is not "biliner", so the attention refinement is never called."""

import torch
from torch import nn

EXPECT = {"kind": "none-grad", "parameters": ["refine.query.weight", "refine.key.weight"]}


class Refine(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.query, self.key = nn.Linear(d, d), nn.Linear(d, d)

    def forward(self, x):
        return x + (self.query(x) @ self.key(x).t()).softmax(-1) @ x


class Segmenter(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        self.encode = nn.Linear(7, 9)
        self.refine = Refine(9)  # DEFINED
        self.decode = nn.Linear(9, 2)

    def forward(self, x):
        h = self.encode(x)
        if self.config["refine"] == "biliner":
            h = self.refine(h)
        return self.decode(h)


torch.manual_seed(0)
net = Segmenter({"refine": "bilinear"})
opt = torch.optim.AdamW(net.parameters())
for _ in range(3):
    loss = nn.functional.cross_entropy(net(torch.randn(10, 7)), torch.randint(0, 2, (10,)))
    opt.zero_grad()
    loss.backward()
    opt.step()
print([n for n, p in net.named_parameters() if p.grad is None])
