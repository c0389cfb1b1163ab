"""Structured pruning in mid-run: the layers are rebuilt with fewer channels at step 100, the optimizer keeps the parameters of the old ones.

Report: https://github.com/microsoft/nni/issues/4521 (fine-tuned parameters of the pruned model do not change; also microsoft/nni pull 3844)
"""
import torch
from torch import nn

EXPECT = {
    "class": "no-optimizer", "kind": "parameter-not-in-optimizer", "optimizer_marker": "OPTIMIZER",
    "parameters": ["body.0.weight", "body.0.bias", "body.2.weight", "body.2.bias"],
    "set": "third", "written": "2026-11-22",
}


class SuperResolution(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.head = nn.Conv2d(1, 4, 3, padding=1)
        self.body = nn.Sequential(nn.Conv2d(4, width, 3, padding=1), nn.ReLU(), nn.Conv2d(width, 4, 3, padding=1))
        self.tail = nn.Sequential(nn.Conv2d(4, 4, 3, padding=1), nn.PixelShuffle(2))

    def forward(self, x):
        h = self.head(x)
        return self.tail(h + self.body(h))


def speedup(body, sparsity):
    first, last = body[0], body[2]
    keep = first.weight.abs().sum((1, 2, 3)).argsort(descending=True)[: int(first.out_channels * (1 - sparsity))].sort().values
    slim = nn.Conv2d(first.in_channels, len(keep), 3, padding=1)
    slim_last = nn.Conv2d(len(keep), last.out_channels, 3, padding=1)
    with torch.no_grad():
        slim.weight.copy_(first.weight[keep])
        slim.bias.copy_(first.bias[keep])
        slim_last.weight.copy_(last.weight[:, keep])
        slim_last.bias.copy_(last.bias)
    body[0], body[2] = slim, slim_last


torch.manual_seed(0)
model = SuperResolution()
opt = torch.optim.Adam(model.parameters(), lr=2e-3, betas=(0.9, 0.99))  # OPTIMIZER
sched = torch.optim.lr_scheduler.MultiStepLR(opt, [80, 120], 0.5)
for current_iter in range(140):
    if current_iter == 100:
        speedup(model.body, sparsity=0.25)
        kept = model.body[0].weight.detach().clone()
    hr = torch.rand(2, 1, 12, 12)
    loss = nn.functional.l1_loss(model(nn.functional.avg_pool2d(hr, 2)), hr)
    opt.zero_grad()
    loss.backward()
    opt.step()
    sched.step()
print("reproduced", torch.equal(kept, model.body[0].weight))
