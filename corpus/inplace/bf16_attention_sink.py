"""Small transformer under bf16 autocast with accumulation: after some updates the first position is taken out of the attention, in place, after the softmax."""
import torch
from torch import nn

EXPECT = {
    "class": "late-inplace", "kind": "inplace", "mutating_marker": "MUTATES", "step": 150,
    "set": "late_again", "written": "2026-11-22",
}


class Block(nn.Module):
    def __init__(self, dim=24):
        super().__init__()
        self.qkv, self.out, self.norm, self.sinkless = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim), nn.LayerNorm(dim), False

    def forward(self, x):
        q, k, v = self.qkv(self.norm(x)).chunk(3, -1)
        weights = (q @ k.mT / q.shape[-1] ** 0.5).softmax(-1)
        if self.sinkless:
            weights[..., 0].zero_()  # MUTATES
        return x + self.out(weights @ v)


torch.manual_seed(0)
embed, blocks, head = nn.Embedding(11, 24), nn.Sequential(Block(), Block()), nn.Linear(24, 11)
params = [*embed.parameters(), *blocks.parameters(), *head.parameters()]
opt = torch.optim.AdamW(params, 2e-3)
for update in range(170):
    blocks[1].sinkless = update >= 150
    for part in range(2):
        ids = (torch.randint(0, 11, (6, 1)) + torch.arange(9)) % 11
        with torch.autocast("cpu", torch.bfloat16):
            logits = head(blocks(embed(ids[:, :-1])))
            loss = nn.functional.cross_entropy(logits.float().flatten(0, 1), ids[:, 1:].flatten()) / 2
        loss.backward()
    opt.step()
    opt.zero_grad()
    if update % 40 == 0:
        print(update, round(loss.item(), 4))
