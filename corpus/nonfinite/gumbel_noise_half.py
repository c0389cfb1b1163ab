"""Recommender with Gumbel-softmax sampling: the noise is drawn in half precision, where exact zeros are common.

Report: https://github.com/HKUDS/SSLRec/issues/26 (log of a zero uniform sample gives -inf, the loss becomes inf or NaN)
"""
import torch
from torch import nn

EXPECT = {
    "class": "born-without-gradient", "kind": "nonfinite-forward-poisons-backward", "source_marker": "BORN",
    "set": "first", "written": "2026-11-22",
}


class Sampler(nn.Module):
    def __init__(self):
        super().__init__()
        self.score = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 10))

    def forward(self, x):
        logits = self.score(x)
        u = torch.rand(logits.shape, dtype=torch.float16)
        noise = torch.log(u.float())  # BORN
        y = torch.softmax(logits - torch.log(-noise), 1)
        return y


torch.manual_seed(3)
model = Sampler()
opt = torch.optim.Adam(model.parameters(), 1e-3)
data = torch.randn(256, 8)
labels = torch.randint(0, 10, (256,))
for step in range(80):
    pick = torch.randint(0, 256, (32,))
    y = model(data[pick])
    loss = nn.functional.nll_loss(torch.log(y + 1e-9), labels[pick]) + 0.1 * (y * y.log()).sum(1).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
print("reproduced", bool(loss.isnan()), step)
