"""The per-relation layers sit in a plain dict, so parameters() does not see them and they keep their random values;
only the self layers and the head learn.

Report: pytorch/pytorch issues 632 and 10817 (layers per relation in a dict are not registered)
"""

import torch
import torch.nn.functional as F
from torch import nn

EXPECT = {
    "kind": "unregistered-parameter",
    "line": ("cut", "HERE"),
    "plain": "with: loss 0.75, unseen accuracy 0.37 (chance 0.33), heard layers unchanged; mended (nn.ModuleDict): loss 0.0005, unseen 0.886",
    "set": "twentyeighth",
    "written": "2026-11-29",
}


RELATIONS = ["kin", "trade", "feud"]
FEATURES = 24


def build_county(villages, seed):
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(villages, FEATURES, generator=g)
    edges = {}
    for r in RELATIONS:
        src = torch.randint(villages, (villages * 3,), generator=g)
        dst = torch.arange(villages).repeat(3)
        edges[r] = (src, dst)
    pull = torch.zeros(villages)
    for column, (r, sign) in enumerate([("kin", 1.0), ("trade", 1.0), ("feud", -1.2)]):
        src, dst = edges[r]
        told = torch.zeros(villages).index_add(0, dst, x[src, 5 * column + 1])
        pull = pull + sign * told
    y = torch.bucketize(pull, pull.quantile(torch.tensor([1 / 3, 2 / 3])))
    return x, edges, y


class RumourLayer(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.own = nn.Linear(inputs, outputs)
        self.heard = {r: nn.Linear(inputs, outputs, bias=False) for r in RELATIONS}  # HERE

    def forward(self, h, edges):
        out = self.own(h)
        for r, layer in self.heard.items():
            src, dst = edges[r]
            message = layer(h)[src]
            total = torch.zeros_like(out).index_add(0, dst, message)
            out = out + total / 3
        return out


class RumourNet(nn.Module):
    def __init__(self, hidden=12, classes=3):
        super().__init__()
        self.first = RumourLayer(FEATURES, hidden)
        self.norm = nn.LayerNorm(hidden)
        self.head = nn.Sequential(nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, classes))

    def forward(self, x, edges):
        h = self.first(x, edges)
        return self.head(F.relu(self.norm(h)))


def train(model, county, mask, steps=300, lr=1e-2):
    x, edges, y = county
    opt = torch.optim.Adam(model.parameters(), lr=lr, weight_decay=1e-4)
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, steps)
    for step in range(steps):
        model.train()
        logits = model(x, edges)
        loss = F.cross_entropy(logits[mask], y[mask])
        opt.zero_grad()
        loss.backward()
        opt.step()
        sched.step()
        if step % 50 == 0 or step == steps - 1:
            seen, unseen = score(model, county, mask), score(model, county, ~mask)
            print(f"step {step:3d}  loss {loss.item():.4f}  seen {seen:.3f}  unseen {unseen:.3f}")


@torch.no_grad()
def score(model, county, mask):
    x, edges, y = county
    model.eval()
    return (model(x, edges).argmax(1) == y)[mask].float().mean().item()


def main():
    torch.manual_seed(6)
    county = build_county(2400, seed=2)
    mask = torch.rand(2400, generator=torch.Generator().manual_seed(3)) < 0.7
    model = RumourNet()
    train(model, county, mask)
    print(f"final unseen {score(model, county, ~mask):.3f}")


if __name__ == "__main__":
    main()
