"""Land use from small satellite tiles with a projection written as a Function that recomputes to save memory: after a warm-up in single precision autocast is switched on, the output is bfloat16, the saved weight is not, and the backward's product refuses.

Report: https://github.com/pytorch/ao/issues/4616 (backward crashes under torch.autocast(bfloat16): saved pair of bf16 and float32, torch.mm in the backward does not promote)
"""
import torch
from torch import nn
from torch.nn import functional as F

EXPECT = {
    "class": "dies-late", "framework": "amp", "kind": "backward-error", "apply_marker": "APPLY", "step": 30,
    "set": "eleventh", "written": "2026-11-23",
}


class ProjectAndSquash(torch.autograd.Function):
    """silu(x W'), of which only x and W are kept."""

    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        return F.silu(x @ weight.t())

    @staticmethod
    def backward(ctx, grad_output):
        x, weight = ctx.saved_tensors
        h = x @ weight.t()
        gate = torch.sigmoid(h)
        grad_h = grad_output * gate * (1 + h * (1 - gate))
        flat = grad_h.flatten(0, -2)
        return (flat @ weight).view_as(x), flat.t() @ x.flatten(0, -2)


class LeanLayer(nn.Module):
    def __init__(self, width_in, width_out):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(width_out, width_in) / width_in**0.5)

    def forward(self, x):
        return ProjectAndSquash.apply(x, self.weight)  # APPLY


class LandUse(nn.Module):
    def __init__(self, bands=8, width=32, classes=5):
        super().__init__()
        self.embed = nn.Conv2d(bands, width, 3, padding=1)
        self.norm = nn.GroupNorm(4, width)
        self.mix = LeanLayer(width, 2 * width)
        self.out = nn.Linear(2 * width, classes)

    def forward(self, tile):
        x = self.norm(self.embed(tile))
        return self.out(self.mix(x.permute(0, 2, 3, 1))).permute(0, 3, 1, 2)


def tiles(spectra, count=8, size=12):
    use = torch.randint(0, len(spectra), (count, size // 4, size // 4)).repeat_interleave(4, 1).repeat_interleave(4, 2)
    return spectra[use].permute(0, 3, 1, 2) + 0.4 * torch.randn(count, 8, size, size), use


torch.manual_seed(0)
model, spectra = LandUse(), torch.randn(5, 8)
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
for step in range(60):
    tile, use = tiles(spectra)
    with torch.autocast("cpu", torch.bfloat16, enabled=step >= 30):
        loss = F.cross_entropy(model(tile), use)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 10 == 0 or step == 29:
        print(f"step {step} loss {loss.item():.4f}")
