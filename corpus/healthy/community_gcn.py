"""Node classification in a community graph with a two-layer GCN, layers in a ModuleList, two parameter groups, dropout, and the best weights kept and put back. Healthy."""
import copy

import torch
import torch.nn as nn
import torch.nn.functional as F

EXPECT = {"framework": "plain", "kind": None, "set": "nineteenth", "written": "2026-11-27"}


def community_graph(n=400, classes=4, feats=24, seed=0):
    gen = torch.Generator().manual_seed(seed)
    y = torch.randint(0, classes, (n,), generator=gen)
    same = y[:, None] == y[None, :]
    prob = torch.where(same, 0.035, 0.008)
    upper = (torch.rand(n, n, generator=gen) < prob).float().triu(1)
    adj = upper + upper.t() + torch.eye(n)
    d = adj.sum(1).rsqrt()
    centres = torch.randn(classes, feats, generator=gen)
    x = 0.5 * centres[y] + torch.randn(n, feats, generator=gen)
    return d[:, None] * adj * d[None, :], x, y


class GraphConv(nn.Module):
    def __init__(self, d_in, d_out):
        super().__init__()
        self.lin = nn.Linear(d_in, d_out, bias=False)
        self.bias = nn.Parameter(torch.zeros(d_out))

    def forward(self, a, x):
        return a @ self.lin(x) + self.bias


class GCN(nn.Module):
    def __init__(self, sizes, dropout=0.5):
        super().__init__()
        self.convs = nn.ModuleList(GraphConv(i, o) for i, o in zip(sizes[:-1], sizes[1:]))
        self.dropout = dropout

    def forward(self, a, x):
        for k, conv in enumerate(self.convs):
            x = F.dropout(x, self.dropout, training=self.training)
            x = conv(a, x)
            if k < len(self.convs) - 1:
                x = F.relu(x)
        return x


torch.manual_seed(0)
a, x, y = community_graph()
perm = torch.randperm(len(y))
train_idx, val_idx, test_idx = perm[:60], perm[60:160], perm[160:]

model = GCN([24, 32, 4])
optimizer = torch.optim.Adam([
    {"params": model.convs[0].parameters(), "weight_decay": 5e-4},
    {"params": model.convs[1].parameters(), "weight_decay": 0.0},
], lr=0.01)
scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, start_factor=1.0, end_factor=0.0, total_iters=150)
best_acc, best_state = 0.0, None

for epoch in range(150):
    model.train()
    optimizer.zero_grad()
    loss = F.cross_entropy(model(a, x)[train_idx], y[train_idx])
    loss.backward()
    optimizer.step()
    scheduler.step()
    if epoch % 5 == 4:
        model.eval()
        with torch.no_grad():
            pred = model(a, x).argmax(1)
        acc = (pred[val_idx] == y[val_idx]).float().mean().item()
        if acc > best_acc:
            best_acc = acc
            best_state = copy.deepcopy(model.state_dict())
        if epoch % 25 == 24:
            print(f"epoch {epoch + 1:3d}  loss {loss.item():.3f}  val acc {acc:.3f}  lr {scheduler.get_last_lr()[0]:.4f}")

model.load_state_dict(best_state)
model.eval()
with torch.no_grad():
    pred = model(a, x).argmax(1)
print(f"best val {best_acc:.3f}  test acc {(pred[test_idx] == y[test_idx]).float().mean():.3f}")
