"""Local attention with padding: the window mask and the padding mask together leave one query with nothing to look at.

Report: https://github.com/pytorch/pytorch/issues/41508
"""
import torch
from torch import nn

EXPECT = {
    "class": "masked-softmax", "kind": "nonfinite-forward-poisons-backward", "source_marker": "CULPRIT", "module": "attn",
    "set": "first", "written": "2026-11-22",
}


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.attn, self.norm, self.head = nn.MultiheadAttention(8, 2, batch_first=True), nn.LayerNorm(8), nn.Linear(8, 3)

    def forward(self, x, window, padding):
        y, _ = self.attn(x, x, x, attn_mask=window, key_padding_mask=padding)  # CULPRIT
        return self.head(self.norm(x + y))


torch.manual_seed(0)
model = Block()
opt = torch.optim.AdamW(model.parameters(), 1e-3)
window = (torch.arange(6)[:, None] - torch.arange(6)[None]).abs() > 1
for step in range(30):
    x, y = torch.randn(3, 6, 8), torch.randint(0, 3, (3, 6))
    padding = torch.zeros(3, 6, dtype=torch.bool)
    padding[1, -1] = True
    if step == 18:
        padding[2, 3:] = True  # short sentence: query 5 sees keys 4 and 5 only
    logits = model(x, window, padding)
    loss = nn.functional.cross_entropy(logits[~padding], y[~padding])
    opt.zero_grad()
    loss.backward()
    opt.step()
print("reproduced", model.attn.in_proj_weight.isnan().any().item())
