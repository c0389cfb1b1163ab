"""Two-pass tagger: a draft head proposes labels, a refiner re-reads them.
Starts with soft label embeddings, then switches to the discrete ones used at test time."""

import os

import torch
import torch.nn as nn
import torch.nn.functional as F

EXPECT = {
    "kind": "none-grad",
    "line": ("cut", "HERE"),
    "module": "draft",
    "parameters": ["draft.mlp.0.weight", "draft.mlp.0.bias", "draft.mlp.2.weight", "draft.mlp.2.bias"],
    "set": "compiled",
    "written": "2026-11-24",
}
BACKEND = os.environ.get("BACKEND", "aot_eager")
torch.manual_seed(2)
VOC, LAB, D, L = 40, 7, 32, 10
HARD_FROM = 14


class DraftHead(nn.Module):
    def __init__(self):
        super().__init__()
        self.mlp = nn.Sequential(nn.Linear(D, D), nn.GELU(), nn.Linear(D, LAB))
        self.hard = False

    def forward(self, h):
        score = self.mlp(h)
        if self.hard:
            best = score.argmax(dim=-1)  # HERE
            return F.one_hot(best, LAB).to(h.dtype)
        return score.softmax(dim=-1)


class EncLayer(nn.Module):
    def __init__(self):
        super().__init__()
        self.att = nn.MultiheadAttention(D, 4, batch_first=True)
        self.ff = nn.Sequential(nn.Linear(D, 2 * D), nn.GELU(), nn.Linear(2 * D, D))
        self.n1, self.n2 = nn.LayerNorm(D), nn.LayerNorm(D)

    def forward(self, x):
        y = self.n1(x)
        x = x + self.att(y, y, y, need_weights=False)[0]
        return x + self.ff(self.n2(x))


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.tok = nn.Embedding(VOC, D)
        self.pos = nn.Parameter(0.02 * torch.randn(L, D))
        self.enc = EncLayer()
        self.draft = DraftHead()
        self.lab = nn.Linear(LAB, D, bias=False)
        self.refine = EncLayer()
        self.out = nn.Linear(D, LAB)

    def forward(self, ids):
        h = self.enc(self.tok(ids) + self.pos)
        h = h + self.lab(self.draft(h))
        return self.out(self.refine(h))


rule = torch.randint(0, LAB, (VOC,))
tagger = Tagger()
step_fn = torch.compile(tagger, backend=BACKEND)
opt = torch.optim.AdamW(tagger.parameters(), lr=2e-3)
sched = torch.optim.lr_scheduler.LinearLR(opt, 1.0, 0.3, total_iters=30)

for it in range(28):
    if it == HARD_FROM:
        tagger.draft.hard = True
    ids = torch.randint(0, VOC, (16, L))
    gold = (rule[ids] + rule[ids.roll(1, 1)]) % LAB
    loss = F.cross_entropy(step_fn(ids).flatten(0, 1), gold.flatten(), label_smoothing=0.05)
    opt.zero_grad(set_to_none=True)
    loss.backward()
    nn.utils.clip_grad_norm_(tagger.parameters(), 1.0)
    opt.step()
    sched.step()
    if it % 4 == 0:
        print(f"it {it} loss {loss.item():.4f}")
