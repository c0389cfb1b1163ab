"""Keypoints of two pictures are matched by optimal transport in a few Sinkhorn rounds: all points have a partner until pictures with passers-by come, whose points are far from everything, their column of the kernel underflows to zeros and the scaling divides by it.

Report: https://github.com/rajewsky-lab/novosparc/issues/50 (sinkhorn with a low epsilon: "divide by zero encountered", v = b / KtransposeU; also https://github.com/PythonOT/POT/issues/54)
"""
import torch
from torch import nn

EXPECT = {
    "class": "late-nonfinite", "kind": "nonfinite-forward-poisons-backward", "source_marker": "CULPRIT", "step": 50,
    "set": "eleventh", "written": "2026-11-23",
}


class Describer(nn.Module):
    def __init__(self, raw=16, width=64, size=24):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(raw, width), nn.GELU(), nn.Linear(width, size))

    def forward(self, patches):
        return self.net(patches)


class SinkhornMatcher(nn.Module):
    def __init__(self, temperature=0.05, rounds=6):
        super().__init__()
        self.temperature, self.rounds = temperature, rounds

    def forward(self, left, right):
        cost = (left[:, :, None] - right[:, None]).pow(2).mean(-1)
        kernel = torch.exp(-cost / self.temperature)
        share = 1.0 / kernel.shape[-1]
        u = torch.full_like(kernel[..., :1], share)
        for _ in range(self.rounds):
            v = share / (kernel.transpose(1, 2) @ u)  # CULPRIT
            u = share / (kernel @ v)
        return u * kernel * v.transpose(1, 2) / share


def pair_of_views(passers_by, count=20, size=16, batch=8):
    patches = torch.randn(batch, count, size)
    order = torch.stack([torch.randperm(count) for _ in range(batch)])
    other = torch.gather(patches, 1, order[..., None].expand(-1, -1, size))
    other = other + 0.3 * torch.randn_like(other)
    if passers_by:
        other[:, :passers_by] = 40 + 5 * torch.randn(batch, passers_by, size)
    return patches, other, order


torch.manual_seed(1)
describer, matcher = Describer(), SinkhornMatcher()
optimizer = torch.optim.AdamW(describer.parameters(), lr=1e-3)
for step in range(100):
    passers_by = 0 if step < 50 else 2
    left, right, order = pair_of_views(passers_by)
    plan = matcher(describer(left), describer(right))
    found = torch.gather(plan.transpose(1, 2), 2, order[..., None]).squeeze(-1)[:, passers_by:]
    loss = -torch.log(found + 1e-6).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 10 == 0 or 49 <= step <= 51:
        print(f"step {step:2d} passers-by {passers_by} loss {loss.item():.4f}")
