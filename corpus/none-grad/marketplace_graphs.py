"""Classify small marketplace graphs with several edge types; data-parallel on one gloo process.

Report: https://github.com/pyg-team/pytorch_geometric/pull/8592
"""
import socket

import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

EXPECT = {
    "kind": "none-grad",
    "line": ("cut", "BRANCH"),
    "framework": "torch.distributed",
    "plain": "after some dozens of good steps: RuntimeError: Expected to have finished reduction in the prior iteration",
    "late": True,
    "set": "twentythird",
    "written": "2026-11-28",
}

RELATIONS = ("buys", "messages", "refunds")


class MarketGraphs(Dataset):
    def __init__(self, n, seed, n_features=8):
        rng = np.random.default_rng(seed)
        self.graphs = []
        for _ in range(n):
            size = int(rng.integers(8, 16))
            label = int(rng.integers(2))
            x = rng.normal(size=(size, n_features)).astype(np.float32)
            edges = {}
            for relation, per_node in (("buys", 1.5), ("messages", 1.0)):
                m = int(size * per_node)
                src, dst = rng.integers(size, size=m), rng.integers(size, size=m)
                if relation == "buys" and label:
                    dst = np.where(rng.random(m) < 0.6, np.argmax(x[:, 0]), dst)
                edges[relation] = np.stack([src, dst])
            m = int(rng.integers(1, 4)) if rng.random() < 0.27 else 0
            edges["refunds"] = rng.integers(size, size=(2, m))
            self.graphs.append((torch.from_numpy(x), {r: torch.from_numpy(e).long() for r, e in edges.items()}, label))

    def __len__(self):
        return len(self.graphs)

    def __getitem__(self, i):
        return self.graphs[i]


def collate(graphs):
    offset, xs, owner, labels = 0, [], [], []
    edges = {r: [] for r in RELATIONS}
    for g, (x, by_relation, label) in enumerate(graphs):
        xs.append(x)
        owner.append(torch.full((len(x),), g))
        labels.append(label)
        for r in RELATIONS:
            edges[r].append(by_relation[r] + offset)
        offset += len(x)
    return torch.cat(xs), {r: torch.cat(e, dim=1) for r, e in edges.items()}, torch.cat(owner), torch.tensor(labels)


class RelationalLayer(nn.Module):
    def __init__(self, n_in, n_out):
        super().__init__()
        self.own = nn.Linear(n_in, n_out)
        self.by_relation = nn.ModuleDict({r: nn.Linear(n_in, n_out) for r in RELATIONS})

    def forward(self, x, edges):
        out = self.own(x)
        for relation, layer in self.by_relation.items():
            src, dst = edges[relation]
            if src.numel() == 0:  # BRANCH
                continue
            out = out.index_add(0, dst, layer(x[src]))
        return F.relu(out)


class MarketModel(nn.Module):
    def __init__(self, n_features=8, width=32):
        super().__init__()
        self.first = RelationalLayer(n_features, width)
        self.second = RelationalLayer(width, width)
        self.out = nn.Linear(2 * width, 2)

    def forward(self, x, edges, owner, n_graphs):
        h = self.second(self.first(x, edges), edges)
        total = h.new_zeros(n_graphs, h.shape[1]).index_add(0, owner, h)
        peak = h.new_zeros(n_graphs, h.shape[1]).scatter_reduce(0, owner[:, None].expand_as(h), h, "amax")
        return self.out(torch.cat([total / 12, peak], dim=1))


def run():
    torch.manual_seed(4)
    loader = DataLoader(MarketGraphs(800, seed=1), batch_size=16, shuffle=True, collate_fn=collate)
    test = DataLoader(MarketGraphs(300, seed=2), batch_size=100, collate_fn=collate)
    model = DistributedDataParallel(MarketModel())
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    step = 0
    for epoch in range(10):
        for x, edges, owner, labels in loader:
            loss = F.cross_entropy(model(x, edges, owner, len(labels)), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            if step % 20 == 0:
                print(f"step {step:4d}  loss {loss.item():.4f}")
        with torch.no_grad():
            right = sum((model.module(x, e, o, len(y)).argmax(-1) == y).sum().item() for x, e, o, y in test)
        print(f"epoch {epoch}  test accuracy {right / 300:.3f}")


def main():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=0, world_size=1)
    try:
        run()
    finally:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
