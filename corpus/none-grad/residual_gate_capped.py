"""Residual blocks with a learned gate, trained for two targets: a gate that reaches its cap is replaced by the number and does not learn back."""
import torch
from torch import nn

EXPECT = {
    "class": "late-cut", "kind": "none-grad", "cut_marker": "CUT", "module": "blocks.0", "parameters": ["blocks.0.gate"], "step": 548,
    "set": "late", "written": "2026-11-22",
}


class Block(nn.Module):
    def __init__(self, dim, cap=0.6):
        super().__init__()
        self.inner, self.gate, self.cap = nn.Linear(dim, dim), nn.Parameter(torch.tensor(0.1)), cap

    def forward(self, x):
        gate = self.gate
        if gate > self.cap:
            gate = min(self.gate.item(), self.cap)  # CUT
        return x + gate * torch.tanh(self.inner(x))


class Net(nn.Module):
    def __init__(self, dim=16):
        super().__init__()
        self.stem, self.blocks = nn.Linear(6, dim), nn.ModuleList([Block(dim), Block(dim)])
        self.label, self.value = nn.Linear(dim, 3), nn.Linear(dim, 1)

    def forward(self, x):
        h = self.stem(x)
        for block in self.blocks:
            h = block(h)
        return self.label(h), self.value(h)[:, 0]


torch.manual_seed(0)
net = Net()
gates = [p for n, p in net.named_parameters() if n.endswith("gate")]
others = [p for n, p in net.named_parameters() if not n.endswith("gate")]
opt = torch.optim.Adam([{"params": others}, {"params": gates, "lr": 1e-3}], lr=3e-3)
for step in range(590):
    x = torch.randn(32, 6)
    labels = (x[:, 0] * x[:, 1] > 0).long() + (x[:, 2] > 1).long()
    logits, value = net(x)
    loss = nn.functional.cross_entropy(logits, labels) + 0.5 * nn.functional.mse_loss(value, x[:, 3] * x[:, 4])
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 50 == 0:
        print(step, round(loss.item(), 4), [round(g.item(), 3) for g in gates])
