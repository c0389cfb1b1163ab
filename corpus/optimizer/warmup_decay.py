"""A GRU that counts brackets, with a warm-up of 60 steps and then linear decay. It learns well through the warm-up and
from step 61 on nothing changes any more: the decay is written with // and gives 0 at once instead of a line from 1 to 0."""
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.optim.lr_scheduler import LambdaLR

EXPECT = {
    "class": "learning rate becomes zero",
    "kind": "learning-rate-zero",
    "line": ["cause", "cause"],
    "what": "The schedule's decay uses integer division, so the learning rate falls to exactly 0 right after the warm-up (step 61) and stays there; gradients are fine, updates are zero.",
    "symptom": "no error; loss stops going down at step 61, all weights stay the same",
    "set": "sixteenth",
    "written": "2026-11-27",
}

torch.manual_seed(15)
torch.set_num_threads(1)
WARMUP, TOTAL = 60, 200


class BracketModel(nn.Module):
    """Is the nesting depth above zero after the last token?"""

    def __init__(self, vocab=4, dim=12, hidden=24):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.gru = nn.GRU(dim, hidden, batch_first=True)
        self.norm = nn.LayerNorm(hidden)
        self.out = nn.Linear(hidden, 2)

    def forward(self, ids):
        states, _ = self.gru(self.embed(ids))
        return self.out(self.norm(states[:, -1]))


def make_batch(n=64, length=14):
    ids = torch.randint(0, 4, (n, length))
    depth = (ids == 0).sum(1) - (ids == 1).sum(1)
    return ids, (depth > 0).long()


def warmup_then_linear(warmup, total):
    def factor(step):
        if step < warmup:
            return (step + 1) / warmup
        return max(0, (total - step) // (total - warmup))  # <-- cause
    return factor


def evaluate(model):
    model.eval()
    with torch.no_grad():
        ids, y = make_batch(512)
        acc = (model(ids).argmax(1) == y).float().mean().item()
    model.train()
    return acc


model = BracketModel()
decay = [p for p in model.parameters() if p.ndim >= 2]
rest = [p for p in model.parameters() if p.ndim < 2]
optimizer = torch.optim.AdamW(
    [{"params": decay, "weight_decay": 0.05}, {"params": rest, "weight_decay": 0.0}], lr=4e-3)
scheduler = LambdaLR(optimizer, warmup_then_linear(WARMUP, TOTAL))

losses = []
for step in range(TOTAL):
    ids, y = make_batch()
    loss = F.cross_entropy(model(ids), y)
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    scheduler.step()
    losses.append(loss.item())
    if step % 20 == 19:
        print(f"step {step + 1:3d}  loss (mean of 20) {sum(losses[-20:]) / 20:.4f}  accuracy {evaluate(model):.3f}")
