"""Graph attention on sparse edges without the largest score taken off: all weights of one node underflow, their sum is zero and its output 0 / 0.

Report: https://github.com/diegoantognini/pyGAT/issues/11 (assert not torch.isnan(h_prime).any(); also issue 12 there)
"""
import torch
from torch import nn

EXPECT = {
    "class": "overflow", "kind": "nonfinite-forward-poisons-backward", "source_marker": "CULPRIT", "module": "attentions.0", "step": 22,
    "set": "fifth", "written": "2026-11-22",
}


class SpGraphAttention(nn.Module):
    def __init__(self, in_features, out_features, alpha=0.2):
        super().__init__()
        self.W = nn.Parameter(torch.empty(in_features, out_features))
        self.a = nn.Parameter(torch.empty(1, 2 * out_features))
        nn.init.xavier_normal_(self.W, gain=1.414)
        nn.init.xavier_normal_(self.a, gain=1.414)
        self.leakyrelu = nn.LeakyReLU(alpha)

    def forward(self, x, edge):
        h = x @ self.W
        edge_h = torch.cat((h[edge[0]], h[edge[1]]), dim=1).t()
        edge_e = torch.exp(-self.leakyrelu(self.a.mm(edge_h).squeeze()))
        e_rowsum = torch.zeros(len(x)).index_add(0, edge[0], edge_e)
        h_prime = torch.zeros_like(h).index_add(0, edge[0], edge_e[:, None] * h[edge[1]])
        return nn.functional.elu(h_prime / e_rowsum[:, None])  # CULPRIT


class GAT(nn.Module):
    def __init__(self, features=6, hidden=8, classes=3, heads=2):
        super().__init__()
        self.attentions = nn.ModuleList([SpGraphAttention(features, hidden) for _ in range(heads)])
        self.out = nn.Linear(hidden * heads, classes)

    def forward(self, x, edge):
        return self.out(torch.cat([attention(x, edge) for attention in self.attentions], 1))


torch.manual_seed(3)
model = GAT()
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3, weight_decay=5e-4)
for step in range(60):
    nodes = 20
    x = torch.randn(nodes, 6)
    y = x[:, :3].argmax(1)
    if step == 22:
        with torch.no_grad():  # a timestamp that nobody normalised, in milliseconds
            x[7] = 1e4 * torch.sign(model.attentions[0].W @ model.attentions[0].a[0, :8])
    source = torch.randint(0, nodes, (60,))
    edge = torch.cat([torch.stack([source, torch.randint(0, nodes, (60,))]), torch.arange(nodes).repeat(2, 1)], 1)
    edge = edge[:, (edge[1] != 7) | (edge[0] == 7)]
    loss = nn.functional.cross_entropy(model(x, edge), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 10 == 0 or not loss.isfinite():
        print(step, loss.item())
