"""Prompt tuning without a trainer: after an export the forward takes the exported copy of the prompt, and the prompt does not learn any more."""
import torch
from torch import nn

EXPECT = {
    "class": "late-cut", "kind": "none-grad", "cut_marker": "CUT", "parameters": ["prompt"], "step": 280,
    "set": "late_again", "written": "2026-11-22",
}


class Tuned(nn.Module):
    def __init__(self, dim=16):
        super().__init__()
        self.prompt, self.exported = nn.Parameter(0.1 * torch.randn(3, dim)), False
        self.embed, self.mix, self.head = nn.Embedding(9, dim), nn.Linear(dim, dim), nn.Linear(dim, 9)

    def whole(self):
        if self.exported:
            return torch.tensor(self.prompt.tolist())  # CUT
        return self.prompt

    def forward(self, ids):
        h = torch.cat([self.whole().expand(len(ids), -1, -1), self.embed(ids)], 1)
        return self.head(torch.tanh(self.mix(h)).mean(1))


torch.manual_seed(0)
model = Tuned()
opt = torch.optim.AdamW(model.parameters(), 1e-3)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(opt, 420)
for step in range(420):
    model.exported = step >= 280
    ids = torch.randint(0, 9, (8, 5))
    loss = nn.functional.cross_entropy(model(ids), ids[:, -1])
    loss.backward()
    opt.step()
    scheduler.step()
    opt.zero_grad(set_to_none=True)
    if step % 60 == 0:
        print(step, round(loss.item(), 4))
