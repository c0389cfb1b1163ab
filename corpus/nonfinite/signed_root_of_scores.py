"""Graph transformer: the edge score is passed through a signed square root; an edge without features has a score of exactly zero.

Report: https://github.com/LiamMa/GRIT/issues/1
"""
import torch
from torch import nn

EXPECT = {
    "class": "edge-of-domain", "framework": "pyg", "kind": "nonfinite-backward", "source_marker": "CULPRIT", "module": "layers.1",
    "set": "second", "written": "2026-11-22",
}


class EdgeAttention(nn.Module):
    def __init__(self, dim, signed_root):
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(dim, dim) for _ in range(3))
        self.e, self.score = nn.Linear(dim, dim, bias=False), nn.Linear(dim, 1)
        self.signed_root = signed_root

    def forward(self, x, edge_attr, edge_index):
        src, dst = edge_index
        w = (self.q(x)[dst] + self.k(x)[src]) * self.e(edge_attr)
        if self.signed_root:
            w = w.sign() * w.abs().sqrt()  # CULPRIT
        a = self.score(w.tanh()).sigmoid()
        return x + torch.zeros_like(x).index_add(0, dst, a * self.v(x)[src])


class Grit(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([EdgeAttention(8, False), EdgeAttention(8, True)])
        self.out = nn.Linear(8, 2)

    def forward(self, x, edge_attr, edge_index):
        for layer in self.layers:
            x = layer(x, edge_attr, edge_index)
        return self.out(x.mean(0))


torch.manual_seed(0)
net = Grit()
opt = torch.optim.AdamW(net.parameters(), 1e-3)
for step in range(60):
    x, edge_attr = torch.randn(6, 8), torch.randn(15, 8)
    if step == 42:
        edge_attr[3] = 0.0  # added to connect the graph
    loss = nn.functional.cross_entropy(net(x, edge_attr, torch.randint(0, 6, (2, 15))), torch.tensor(step % 2))
    opt.zero_grad()
    loss.backward()
    opt.step()
    if net.layers[0].q.weight.isnan().any():
        print("reproduced at", step, loss.item())
        break
