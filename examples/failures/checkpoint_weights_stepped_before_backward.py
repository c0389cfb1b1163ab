"""Two-player training: the generator's optimizer steps between the checkpointed forward and its second loss' backward."""

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

EXPECT = {
    "kind": "checkpoint-gradient-differs",
    "line": ("region", "REGION"),
    "ask": "checkpoints",
    "or": [("checkpoint-mismatch", "STEPS", "cause")],
}


class Generator(nn.Module):
    def __init__(self, remat):
        super().__init__()
        self.fc, self.body, self.out, self.remat = (
            nn.Linear(4, 8),
            nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8)),
            nn.Linear(8, 2),
            remat,
        )

    def forward(self, z):
        h = torch.tanh(self.fc(z))
        if self.remat:
            h = checkpoint(self.body, h, use_reentrant=False)  # REGION
        else:
            h = self.body(h)
        return self.out(h)


def run(remat):
    torch.manual_seed(0)
    G, D = Generator(remat), nn.Linear(2, 1)
    opt_body = torch.optim.SGD(G.body.parameters(), lr=5.0)
    z = torch.randn(16, 4)
    fake = G(z)
    # a regulariser on the middle part is stepped first
    reg = sum(p.square().sum() for p in G.body.parameters())
    opt_body.zero_grad()
    reg.backward()
    opt_body.step()  # STEPS
    G.zero_grad()
    (-D(fake).mean()).backward()
    return G.fc.weight.grad


if __name__ == "__main__":
    print(run(True).norm())
