"""Multi-task network balanced by training rates: the losses of the first balanced step are kept as they are, and the next step divides by them, graph and all.

Report: https://github.com/hosseinshn/GradNorm/issues/2 (which initial losses the rates are relative to; lucidrains/gradnorm-pytorch issue 8 asks why retain_graph is in the example)
"""
import torch
from torch import nn

EXPECT = {
    "class": "second-backward", "kind": "second-backward", "bridge_marker": "REUSED", "step": 151,
    "set": "fifth", "written": "2026-11-22",
}


class Balancer:
    def __init__(self, alpha=0.5):
        self.alpha, self.initial = alpha, None

    def __call__(self, losses):
        if self.initial is None:
            self.initial = losses
        rate = losses / self.initial  # REUSED
        weights = (rate / rate.mean()) ** self.alpha
        return (weights * losses).sum()


class TaskNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.shared = nn.Sequential(nn.Linear(10, 32), nn.LayerNorm(32), nn.GELU(), nn.Linear(32, 32), nn.GELU())
        self.depth, self.label, self.angle = nn.Linear(32, 1), nn.Linear(32, 4), nn.Linear(32, 2)

    def forward(self, x):
        h = self.shared(x)
        return self.depth(h)[:, 0], self.label(h), self.angle(h)


torch.manual_seed(0)
net, balance = TaskNet(), Balancer()
optimizer = torch.optim.Adam(net.parameters(), lr=2e-3)
for step in range(220):
    x = torch.randn(32, 10)
    depth, label, angle = net(x)
    losses = torch.stack([
        nn.functional.l1_loss(depth, x[:, :3].norm(dim=1)),
        nn.functional.cross_entropy(label, x[:, :4].argmax(1)),
        nn.functional.mse_loss(angle, x[:, 4:6].sin()),
    ])
    loss = losses.sum() if step < 150 else balance(losses)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 30 == 0:
        print(step, [round(v, 3) for v in losses.tolist()])
