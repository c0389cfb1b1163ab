"""Backward hook on the embedding that is only used through F.linear(h, self.embed.weight)."""

import torch
from torch import nn
import torch.nn.functional as F

EXPECT = {"kind": "hook-never-fires", "line": ("hook", "HOOK")}


class Tied(nn.Module):
    def __init__(self, vocab=12, d=6):
        super().__init__()
        self.embed, self.rnn, self.lm_head = (
            nn.Embedding(vocab, d),
            nn.GRU(d, d, batch_first=True),
            nn.Linear(d, vocab, bias=False),
        )
        self.lm_head.weight = self.embed.weight

    def forward(self, tokens):
        h, _ = self.rnn(self.embed(tokens))
        return F.linear(h, self.lm_head.weight)


torch.manual_seed(0)
lm, norms = Tied(), []
lm.lm_head.register_full_backward_hook(lambda m, gi, go: norms.append(go[0].norm()))  # HOOK
opt = torch.optim.SGD(lm.parameters(), lr=0.5)
for _ in range(3):
    tokens = torch.randint(0, 12, (3, 7))
    loss = F.cross_entropy(lm(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
    opt.zero_grad()
    loss.backward()
    opt.step()
print({"reproduced": norms == []})
