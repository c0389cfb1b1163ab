"""Character model over the Python topics, sharded with fully_shard."""

import datetime
import os
import tempfile
from pydoc_data.topics import topics

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

EXPECT = {"kind": "rank-desync", "rank": 0, "line": ("skipping", "HERE"), "set": "ranks", "written": "2026-11-24"}

CONTEXT, BATCH, WIDTH, STEPS, EVAL_EVERY = 32, 16, 48, 40, 8


class Block(nn.Module):
    def __init__(self, width, heads=4):
        super().__init__()
        self.n1, self.n2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
        self.heads = heads

    def forward(self, x):
        b, t, w = x.shape
        q, k, v = self.qkv(self.n1(x)).view(b, t, 3, self.heads, w // self.heads).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(b, t, w))
        return x + self.mlp(self.n2(x))


class CharLM(nn.Module):
    def __init__(self, vocab):
        super().__init__()
        self.tok = nn.Embedding(vocab, WIDTH)
        self.pos = nn.Parameter(torch.zeros(CONTEXT, WIDTH))
        self.blocks = nn.ModuleList(Block(WIDTH) for _ in range(2))
        self.head = nn.Linear(WIDTH, vocab)

    def forward(self, ids):
        x = self.tok(ids) + self.pos
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def windows(data, gen):
    at = torch.randint(len(data) - CONTEXT - 1, (BATCH,), generator=gen)
    rows = torch.stack([data[i : i + CONTEXT + 1] for i in at])
    return rows[:, :-1], rows[:, 1:]


def loss_of(model, batch):
    ids, target = batch
    return F.cross_entropy(model(ids).flatten(0, 1), target.flatten())


@torch.no_grad()
def evaluate(model, data, ranks):
    gen = torch.Generator().manual_seed(5)
    total = torch.stack([loss_of(model, windows(data, gen)) for _ in range(2)]).mean()
    dist.all_reduce(total)
    return total.item() / ranks


class BestKeeper:
    def __init__(self, path, rank, min_step):
        self.path, self.rank, self.min_step, self.best = path, rank, min_step, float("inf")

    def update(self, model, value, step):
        if step < self.min_step or value >= self.best:
            return
        self.best = value
        if self.rank == 0:
            opts = StateDictOptions(full_state_dict=True, cpu_offload=True)
            weights = get_model_state_dict(model, options=opts)  # HERE
            torch.save({"model": weights, "step": step, "loss": value}, self.path)
            print(f"saved step {step} at {value:.3f}", flush=True)


def main(rank, ranks, store):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", store, rank=rank, world_size=ranks, timeout=datetime.timedelta(seconds=12))
    text = "\n".join(topics[k] for k in sorted(topics))[:200_000]
    chars = sorted(set(text))
    index = {c: i for i, c in enumerate(chars)}
    data = torch.tensor([index[c] for c in text])
    train, valid = data[:-20_000], data[-20_000:]

    torch.manual_seed(0)
    mesh = init_device_mesh("cpu", (ranks,))
    model = CharLM(len(chars))
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    opt = torch.optim.AdamW(model.parameters(), lr=3e-3)
    gen = torch.Generator().manual_seed(rank)
    keeper = BestKeeper(os.path.join(tempfile.gettempdir(), f"charlm-{os.getpid()}.pt"), rank, 12)
    for step in range(STEPS):
        loss = loss_of(model, windows(train, gen))
        loss.backward()
        opt.step()
        opt.zero_grad()
        if (step + 1) % EVAL_EVERY == 0:
            keeper.update(model, evaluate(model, valid, ranks), step)
    dist.destroy_process_group()


if __name__ == "__main__":
    if "RANK" in os.environ:
        main(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), "env://")
    else:
        ranks = int(os.environ.get("RANKS", 2))
        mp.spawn(main, (ranks, f"file://{tempfile.mkdtemp()}/store"), nprocs=ranks)
