"""Infini-attention on long sequences, compiled: after a warm-up on single segments each sequence is read in four, with a backward for each; what goes from one to the next is the memory, and it is not cut off.

Report: https://github.com/jlamprou/Infini-Attention/issues/3 (retain_graph is asked for over several segments; the compressive memory M and z have to be detached)
"""
import torch
from torch import nn
from torch.nn import functional as F

EXPECT = {
    "class": "compile", "kind": "second-backward", "bridge_marker": "REUSED", "step": 60,
    "set": "ninth", "written": "2026-11-23",
}
VOCAB, SEGMENT = 24, 12


class InfiniAttention(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.qkv, self.out = nn.Linear(dim, 3 * dim, bias=False), nn.Linear(dim, dim, bias=False)
        self.gate = nn.Parameter(torch.zeros(1))
        self.register_buffer("future", torch.ones(SEGMENT, SEGMENT, dtype=torch.bool).triu(1))

    def forward(self, x, memory, norm):
        q, k, v = self.qkv(x).chunk(3, -1)
        score = (q @ k.transpose(1, 2) / q.shape[-1] ** 0.5).masked_fill(self.future, float("-inf"))
        local = score.softmax(-1) @ v
        sq, sk = F.elu(q) + 1, F.elu(k) + 1
        read = (sq @ memory) / (sq @ norm + 1e-6)
        memory = memory + sk.transpose(1, 2) @ v
        norm = norm + sk.sum(1).unsqueeze(2)
        gate = self.gate.sigmoid()
        return self.out(gate * read + (1 - gate) * local), memory, norm


class LongModel(nn.Module):
    def __init__(self, dim=24):
        super().__init__()
        self.dim = dim
        self.embed, self.position = nn.Embedding(VOCAB, dim), nn.Parameter(0.02 * torch.randn(SEGMENT, dim))
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.attention = InfiniAttention(dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 48), nn.GELU(), nn.Linear(48, dim))
        self.head = nn.Linear(dim, VOCAB)

    def empty(self, n):
        return torch.zeros(n, self.dim, self.dim), torch.zeros(n, self.dim, 1)

    def forward(self, ids, memory, norm):
        x = self.embed(ids) + self.position
        y, memory, norm = self.attention(self.norm1(x), memory, norm)
        x = x + y
        x = x + self.mlp(self.norm2(x))
        return self.head(x), memory, norm


def books(n, segments):
    theme = torch.randint(0, VOCAB, (n, 5))
    length = segments * SEGMENT + 1
    return theme.repeat(1, length // 5 + 1)[:, :length]


torch.manual_seed(0)
model = LongModel()
step_model = torch.compile(model, backend="aot_eager")
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
for step in range(100):
    segments = 1 if step < 60 else 4
    ids = books(8, segments)
    memory, norm = model.empty(len(ids))
    optimizer.zero_grad()
    for i in range(segments):
        piece = ids[:, i * SEGMENT : (i + 1) * SEGMENT + 1]
        logits, memory, norm = step_model(piece[:, :-1].contiguous(), memory, norm)  # REUSED
        loss = F.cross_entropy(logits.flatten(0, 1), piece[:, 1:].flatten()) / segments
        loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    if step % 15 == 0:
        print(step, loss.item() * segments)
