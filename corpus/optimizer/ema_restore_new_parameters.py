"""EMA weights are swapped in for validation; the restore wraps the backup in a new Parameter each time.

Report: https://github.com/fadel/pytorch_ema/issues/1 (the store / copy_to / restore pattern), mistake as in pytorch/pytorch issue 12603
"""
import torch
from torch import nn

EXPECT = {
    "class": "no-optimizer", "kind": "parameter-not-in-optimizer", "optimizer_marker": "OPTIMIZER",
    "parameters": ["fc.weight", "out.weight"],
    "set": "first", "written": "2026-11-22",
}


class EMA:
    def __init__(self, model, decay=0.95):
        self.model, self.decay = model, decay
        self.shadow = {n: p.detach().clone() for n, p in model.named_parameters()}

    @torch.no_grad()
    def update(self):
        for n, p in self.model.named_parameters():
            self.shadow[n].lerp_(p, 1 - self.decay)

    def swap(self, values):
        old = {}
        for n, p in list(self.model.named_parameters()):
            owner, _, leaf = n.rpartition(".")
            old[n] = p.detach().clone()
            setattr(self.model.get_submodule(owner), leaf, nn.Parameter(values[n].clone()))
        return old


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc, self.out = nn.Linear(6, 12, bias=False), nn.Linear(12, 1, bias=False)

    def forward(self, x):
        return self.out(torch.tanh(self.fc(x)))


torch.manual_seed(0)
net = Net()
opt = torch.optim.Adam(net.parameters(), 1e-2)  # OPTIMIZER
ema = EMA(net)
for step in range(90):
    x = torch.randn(16, 6)
    loss = (net(x) - x.sum(1, keepdim=True)).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    ema.update()
    if step == 50:
        backup = ema.swap(ema.shadow)
        with torch.no_grad():
            print("validation", (net(x) - x.sum(1, keepdim=True)).square().mean().item())
        ema.swap(backup)
        mark = net.fc.weight.detach().clone()
print("reproduced", torch.equal(mark, net.fc.weight))
