"""Titles of recipes are completed word by word. The first 60 words come from an older model and are to stay as they are:
a hook sets their gradient to zero. AdamW with weight decay moves them all the same."""
import torch
import torch.nn as nn
import torch.nn.functional as F

EXPECT = {
    "class": "rows frozen by zero gradients move",
    "kind": "frozen-parameter-moves",
    "line": ["zeroed", "cause"],
    "what": "The hook makes the gradient of the old rows zero, but AdamW's weight decay shrinks them in each step.",
    "symptom": "no error; the old words drift away from what the older model knows",
    "set": "ledger",
    "written": "2026-11-28",
}

torch.manual_seed(2)
torch.set_num_threads(1)
OLD, WORDS = 60, 90


class Titles(nn.Module):
    def __init__(self, dim=24):
        super().__init__()
        self.words = nn.Embedding(WORDS, dim)
        self.cell = nn.GRU(dim, 32, batch_first=True)
        self.out = nn.Linear(32, WORDS)

    def forward(self, ids):
        return self.out(self.cell(self.words(ids))[0])


def keep_old_words(grad):
    grad = grad.clone()
    grad[:OLD] = 0  # <-- cause
    return grad


model = Titles()
model.words.weight.register_hook(keep_old_words)
before = model.words.weight[:OLD].detach().clone()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.1)
step_of_word = torch.randint(1, WORDS, (WORDS,))
for step in range(160):
    ids = [torch.randint(0, WORDS, (16,))]
    for _ in range(8):
        ids.append((ids[-1] + step_of_word[ids[-1]]) % WORDS)
    ids = torch.stack(ids, 1)
    loss = F.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 40 == 39:
        moved = (model.words.weight[:OLD] - before).norm() / before.norm()
        print(f"step {step}  loss {loss.item():.3f}  old words moved by {moved.item():.1%}")
