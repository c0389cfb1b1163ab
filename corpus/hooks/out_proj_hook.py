"""Attribution tool puts a backward hook on every Linear of a transformer; the one of nn.MultiheadAttention.out_proj is never called.

Report: https://github.com/pytorch/pytorch/issues/78109
"""
import torch
from torch import nn

EXPECT = {
    "class": "hook", "kind": "hook-never-fires", "hook_marker": "HOOK", "module": "attn.out_proj",
    "set": "second", "written": "2026-11-22",
}


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.attn, self.norm = nn.MultiheadAttention(8, 2, batch_first=True), nn.LayerNorm(8)
        self.ff, self.out = nn.Linear(8, 8), nn.Linear(8, 3)

    def forward(self, x):
        x = self.norm(x + self.attn(x, x, x, need_weights=False)[0])
        return self.out(x + self.ff(x).relu()).mean(1)


class GradientStats:
    def __init__(self, model):
        self.norms = {}
        self.handle_ff = model.ff.register_full_backward_hook(self.note("ff"))
        self.handle_proj = model.attn.out_proj.register_full_backward_hook(self.note("out_proj"))  # HOOK

    def note(self, name):
        def hook(module, grad_input, grad_output):
            self.norms[name] = grad_output[0].norm().item()

        return hook


torch.manual_seed(0)
net = Block()
opt = torch.optim.AdamW(net.parameters(), 1e-3)
stats = None
for step in range(40):
    if step == 15:
        stats = GradientStats(net)
    loss = nn.functional.cross_entropy(net(torch.randn(4, 5, 8)), torch.tensor([0, 1, 2, 0]))
    opt.zero_grad()
    loss.backward()
    opt.step()
print("reproduced", sorted(stats.norms))
