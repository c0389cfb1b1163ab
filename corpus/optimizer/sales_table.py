"""Sales per store and product from a table with categories; the embedding tables stay at their random start.

Report: https://github.com/pytorch/pytorch/issues/666 (nn.Module does not see the parameters of modules that are kept
in a Python list), https://github.com/pytorch/pytorch/issues/38639 (they stay invisible to the optimizer)

The embeddings get gradients but are in no parameter list, so the optimizer never moves them. The validation error
stops at an R2 of about 0.26; with nn.ModuleList it reaches 0.98.
"""
import torch
from torch import nn

EXPECT = {
    "framework": "plain", "kind": "unregistered-parameter", "line": ("cut", "CAUSE"),
    "what": "The embedding layers are kept in a plain Python list, so they are not in model.parameters() and the optimizer never updates them; use nn.ModuleList.",
    "set": "twentieth", "written": "2026-11-27",
}


def make_sales(n, seed):
    g = torch.Generator().manual_seed(seed)
    w = torch.Generator().manual_seed(77)
    store_effect, item_effect = torch.randn(150, generator=w), torch.randn(200, generator=w)
    cats = torch.stack([torch.randint(0, 150, (n,), generator=g), torch.randint(0, 200, (n,), generator=g)], 1)
    nums = torch.randn(n, 3, generator=g)
    y = store_effect[cats[:, 0]] + item_effect[cats[:, 1]] + 0.5 * nums[:, 0] + 0.1 * torch.randn(n, generator=g)
    return cats, nums, y


class TabularNet(nn.Module):
    def __init__(self, cardinalities, n_num, emb_dim=3, hidden=(64, 32), p=0.0):
        super().__init__()
        self.tables = [nn.Embedding(c, emb_dim) for c in cardinalities]  # CAUSE
        self.norm = nn.BatchNorm1d(n_num)
        sizes = [emb_dim * len(cardinalities) + n_num, *hidden]
        layers = []
        for a, b in zip(sizes[:-1], sizes[1:]):
            layers += [nn.Linear(a, b), nn.ReLU(), nn.Dropout(p)]
        self.mlp = nn.Sequential(*layers, nn.Linear(sizes[-1], 1))

    def forward(self, cats, nums):
        parts = [table(cats[:, i]) for i, table in enumerate(self.tables)]
        return self.mlp(torch.cat(parts + [self.norm(nums)], 1)).squeeze(1)


def r2(model, cats, nums, y):
    model.eval()
    with torch.no_grad():
        err = ((model(cats, nums) - y) ** 2).mean()
    model.train()
    return 1 - (err / y.var()).item()


def run(epochs=10, batch=256):
    torch.manual_seed(4)
    cats, nums, y = make_sales(8000, seed=0)
    val = make_sales(1500, seed=1)
    model = TabularNet([150, 200], 3)
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3, weight_decay=1e-4)
    total = epochs * (len(y) // batch + 1)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=1e-2, total_steps=total)
    for epoch in range(epochs):
        total_loss = 0.0
        for idx in torch.randperm(len(y)).split(batch):
            loss = nn.functional.mse_loss(model(cats[idx], nums[idx]), y[idx])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            scheduler.step()
            total_loss += loss.item() * len(idx)
        print(f"epoch {epoch} train mse {total_loss / len(y):.3f} val R2 {r2(model, *val):.3f}")


if __name__ == "__main__":
    run()
