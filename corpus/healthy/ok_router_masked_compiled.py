"""Healthy: a compiled mixture of experts in bfloat16; the logits of experts that are not among the best two are minus infinity, the entropy is taken where a probability is, rare experts get noise.

Report it resembles: https://github.com/huggingface/trl/pull/7252 (the entropy where a probability is zero, done right here; also pytorch/pytorch issue 31829)
"""
import torch
from torch import nn

EXPECT = {"class": "healthy", "framework": "compile", "kind": "none", "set": "fifth", "written": "2026-11-22"}


class MoE(nn.Module):
    def __init__(self, dim=12, experts=4, k=2):
        super().__init__()
        self.router, self.k = nn.Linear(dim, experts, bias=False), k
        self.up, self.down = nn.Parameter(0.3 * torch.randn(experts, dim, 24)), nn.Parameter(0.3 * torch.randn(experts, 24, dim))

    def forward(self, x):
        logits = self.router(x).float()
        bound = logits.topk(self.k, -1).values[..., -1:]
        p = logits.masked_fill(logits < bound, float("-inf")).softmax(-1)
        h = torch.einsum("bd,edh->beh", x, self.up).relu()
        y = torch.einsum("beh,ehd->bed", h, self.down)
        safe = torch.where(p > 0, p, torch.ones_like(p))
        return x + (p[..., None].to(y.dtype) * y).sum(1), -(p * safe.log()).sum(-1).mean(), logits.softmax(-1).mean(0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.inputs, self.moe, self.out = nn.Linear(8, 12), MoE(), nn.Linear(12, 4)

    def forward(self, x):
        h, entropy, load = self.moe(self.inputs(x).relu())
        return self.out(h), entropy, load


torch.manual_seed(0)
net = Net()
forward = torch.compile(net, backend="aot_eager")
optimizer = torch.optim.AdamW(net.parameters(), lr=3e-3)
for step in range(80):
    x = torch.randn(64, 8)
    y = x[:, :4].argmax(1)
    with torch.autocast("cpu", torch.bfloat16):
        logits, entropy, load = forward(x)
    loss = nn.functional.cross_entropy(logits.float(), y) + 0.01 * entropy + 0.1 * (4 * load * load).sum()
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()
    if step % 20 == 0:
        print(step, loss.item(), [round(v, 2) for v in load.tolist()])
