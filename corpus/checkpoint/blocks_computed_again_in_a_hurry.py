"""Small character model that is checkpointed once its texts get longer; to save time the state of the random numbers is not kept, so the dropout that is computed again is another one than that of the loss.

Report: https://github.com/allenai/OLMo-core/pull/828 (preserve_rng_state = False with dropout: the recompute draws fresh masks, gradients are taken with respect to a different sample than the loss was)
"""
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

EXPECT = {
    "class": "late-checkpoint", "kind": "checkpoint-mismatch", "culprit_marker": "CULPRIT", "step": 40,
    "set": "tenth", "written": "2026-11-23",
}
VOCAB = 28


class Block(nn.Module):
    def __init__(self, dim, kernel=4, dropout=0.2):
        super().__init__()
        self.norm, self.dropout = nn.LayerNorm(dim), dropout
        self.mix = nn.Conv1d(dim, dim, kernel, padding=kernel - 1, groups=dim)
        self.up, self.down = nn.Linear(dim, 2 * dim), nn.Linear(2 * dim, dim)

    def forward(self, x):
        h = self.norm(x)
        h = self.mix(h.transpose(1, 2))[..., : x.shape[1]].transpose(1, 2)
        h = self.down(F.gelu(self.up(h)))
        return x + F.dropout(h, self.dropout, self.training)  # CULPRIT


class CharModel(nn.Module):
    def __init__(self, dim=32, depth=3):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, dim)
        self.blocks = nn.ModuleList(Block(dim) for _ in range(depth))
        self.norm, self.head = nn.LayerNorm(dim), nn.Linear(dim, VOCAB)
        self.checkpointing = False

    def forward(self, ids):
        x = self.embed(ids)
        for block in self.blocks:
            if self.checkpointing:
                x = checkpoint(block, x, use_reentrant=False, preserve_rng_state=False)
            else:
                x = block(x)
        return self.head(self.norm(x))


def texts(n, length):
    word = torch.randint(0, VOCAB, (n, 5))
    ids = word.repeat(1, length // 5 + 1)[:, : length + 1]
    return torch.where(torch.rand(ids.shape) < 0.03, torch.randint(0, VOCAB, ids.shape), ids)


torch.manual_seed(0)
model = CharModel()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
for step in range(80):
    model.checkpointing = step >= 40
    ids = texts(16, 24 if step < 40 else 60)
    loss = F.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 10 == 0:
        print(step, loss.item())
