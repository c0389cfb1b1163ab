"""Policy gradient on a small language model sharded with FSDP2: it is rewarded for short answers."""

import datetime
import os
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

EXPECT = {"kind": "rank-desync", "rank": 0, "step": 4, "line": ("", "HERE"), "set": "ranks", "written": "2026-11-24"}
VOCAB, WIDTH, PROMPT, NEW, BATCH, STEPS, EOS = 20, 32, 4, 16, 6, 24, 0


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.proj = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 2 * WIDTH), nn.GELU(), nn.Linear(2 * WIDTH, WIDTH))

    def forward(self, x):
        b, t, _ = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, t, 3, 2, WIDTH // 2).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(mixed.transpose(1, 2).reshape(b, t, WIDTH))
        return x + self.mlp(self.norm2(x))


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.token = nn.Embedding(VOCAB, WIDTH)
        self.place = nn.Embedding(PROMPT + NEW, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(2))
        self.head = nn.Linear(WIDTH, VOCAB)

    def forward(self, ids):
        x = self.token(ids) + self.place(torch.arange(ids.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.head(x)


@torch.no_grad()
def generate(policy, prompt, gen):
    ids = prompt
    done = torch.zeros(len(prompt), dtype=torch.bool)
    for _ in range(NEW):
        probs = policy(ids)[:, -1].softmax(-1)
        token = torch.multinomial(probs, 1, generator=gen)[:, 0]
        token = torch.where(done, torch.full_like(token, EOS), token)
        ids = torch.cat([ids, token[:, None]], 1)
        done |= token == EOS
        if done.all():
            break  # HERE
    return ids


def policy_loss(policy, ids):
    answer = ids[:, PROMPT:]
    alive = torch.cat([torch.ones(len(ids), 1), (answer != EOS).float().cumprod(1)[:, :-1]], 1)
    length = alive.sum(1)
    advantage = (length.mean() - length) / (length.std() + 1e-3)
    logp = policy(ids[:, :-1])[:, PROMPT - 1 :].log_softmax(-1)
    logp = logp.gather(-1, answer[..., None])[..., 0]
    return -(advantage[:, None] * alive * logp).sum() / alive.sum(), length.mean().item()


def main(rank, ranks, store):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", store, rank=rank, world_size=ranks, timeout=datetime.timedelta(seconds=15))
    torch.manual_seed(0)
    mesh = init_device_mesh("cpu", (ranks,))
    policy = Policy()
    for block in policy.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(policy, mesh=mesh)
    optimizer = torch.optim.AdamW(policy.parameters(), lr=2e-3)
    gen = torch.Generator().manual_seed(100 + rank)
    for step in range(STEPS):
        prompt = torch.randint(1, VOCAB, (BATCH, PROMPT), generator=gen)
        ids = generate(policy, prompt, gen)
        loss, length = policy_loss(policy, ids)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 4 == 0:
            print(f"[{rank}] step {step}: loss {loss.item():.4f}, length of answers {length:.2f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    if "RANK" in os.environ:  # by torchrun
        main(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), "env://")
    else:
        ranks = int(os.environ.get("RANKS", 2))
        mp.spawn(main, (ranks, f"file://{tempfile.mkdtemp()}/store"), nprocs=ranks)
