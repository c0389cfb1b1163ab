"""Recurrent reconstruction trained on four views, then on many: the state is bounded, but its gradient grows with every view.

Report: https://github.com/CUT3R/CUT3R/issues/88
"""
import torch
from torch import nn

EXPECT = {
    "class": "late-blow-up", "kind": "exploding-gradient", "source_marker": "CULPRIT",
    "set": "third", "written": "2026-11-22",
}


class Recurrent(nn.Module):
    def __init__(self, dim=32):
        super().__init__()
        self.view, self.state, self.head = nn.Linear(6, dim), nn.Linear(dim, dim, bias=False), nn.Linear(dim, 3)
        nn.init.normal_(self.state.weight, std=3.0 / dim**0.5)

    def forward(self, views):
        h = views.new_zeros(len(views), self.state.in_features)
        points = []
        for view in views.unbind(1):
            h = torch.tanh(self.view(view) + self.state(h))  # CULPRIT
            points.append(self.head(h))
        return torch.stack(points, 1)


torch.manual_seed(0)
net = Recurrent()
opt = torch.optim.AdamW(net.parameters(), 1e-4)
norms = []
for step in range(70):
    frames = 4 if step < 50 else 160
    views = torch.randn(4, frames, 6)
    loss = nn.functional.mse_loss(net(views), views[..., :3].cumsum(1).tanh())
    opt.zero_grad()
    loss.backward()
    norms.append(torch.cat([p.grad.flatten() for p in net.parameters()]).norm().item())
    opt.step()
print("reproduced", max(norms[:50]), max(norms[50:]), loss.item())
