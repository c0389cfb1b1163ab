"""New words for an old vocabulary, as textual inversion trains them: AdamW decays the whole table, and the old rows are
written back after each step. Their gradients are zeroed as well, by a hook. The last layer is sparse, and its mask is
applied to the weights after each step."""
import torch
import torch.nn as nn
import torch.nn.functional as F

EXPECT = {"class": "healthy", "kind": "none", "set": "ledger", "written": "2026-11-28"}

torch.manual_seed(2)
torch.set_num_threads(1)
OLD = 50
words, out = nn.Embedding(64, 16), nn.Linear(16, 64)
kept = words.weight.detach()[:OLD].clone()
keep = torch.ones(64, 1)
keep[:OLD] = 0
words.weight.register_hook(lambda grad: grad * keep)
mask = (torch.rand_like(out.weight) > 0.5).float()
with torch.no_grad():
    out.weight.mul_(mask)
optimizer = torch.optim.AdamW([*words.parameters(), *out.parameters()], lr=3e-3, weight_decay=0.1)
for step in range(150):
    ids = torch.randint(0, 64, (48,))
    loss = F.cross_entropy(out(words(ids)), (ids * 7 + 3) % 64)
    optimizer.zero_grad()
    loss.backward()
    out.weight.grad.mul_(mask)
    optimizer.step()
    with torch.no_grad():
        words.weight[:OLD] = kept
        out.weight.mul_(mask)
print(f"loss {loss.item():.3f}  weights of zero {int((out.weight == 0).sum())}")
assert torch.equal(words.weight[:OLD], kept)
