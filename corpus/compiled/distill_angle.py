"""Self-distillation: student matches the teacher in embedding angle, teacher is re-synced now and then."""

import copy
import os

import torch
import torch.nn as nn
import torch.nn.functional as F

EXPECT = {
    "kind": "nonfinite-backward",
    "line": ("cause", "HERE"),
    "module": "angle",
    "set": "compiled",
    "written": "2026-11-24",
}
BACKEND = os.environ.get("BACKEND", "aot_eager")
torch.manual_seed(11)
SYNC_EVERY = 20


def conv_block(i, o):
    return nn.Sequential(nn.Conv2d(i, o, 3, padding=1, stride=2), nn.GroupNorm(4, o), nn.SiLU())


class Backbone(nn.Module):
    def __init__(self, dim=32):
        super().__init__()
        self.stages = nn.Sequential(conv_block(3, 16), conv_block(16, 32))
        self.proj = nn.Linear(32, dim)

    def forward(self, img):
        h = self.stages(img).mean(dim=(2, 3))
        return self.proj(h)


class AngleGap(nn.Module):
    def __init__(self):
        super().__init__()
        self.log_temp = nn.Parameter(torch.zeros(()))

    def forward(self, a, b):
        a = F.normalize(a, dim=-1)
        b = F.normalize(b, dim=-1)
        cos = (a * b).sum(-1).clamp(-1.0, 1.0)
        theta = torch.acos(cos)  # HERE
        return (theta * self.log_temp.exp()).mean() - 0.1 * self.log_temp


class SelfDistill(nn.Module):
    def __init__(self):
        super().__init__()
        self.student = Backbone()
        self.teacher = copy.deepcopy(self.student).requires_grad_(False)
        for p in self.teacher.parameters():
            p.add_(0.1 * torch.randn_like(p))
        self.angle = AngleGap()
        self.cls = nn.Linear(32, 5)

    def forward(self, img, label):
        z = self.student(img)
        with torch.no_grad():
            zt = self.teacher(img)
        return F.cross_entropy(self.cls(z), label), self.angle(z, zt)

    @torch.no_grad()
    def sync(self):
        self.teacher.load_state_dict(self.student.state_dict())


protos = torch.randn(5, 3, 16, 16)
model = SelfDistill()
run = torch.compile(model, backend=BACKEND)
params = [p for p in model.parameters() if p.requires_grad]
opt = torch.optim.AdamW(params, lr=1e-3, weight_decay=1e-2)

for it in range(32):
    y = torch.randint(0, 5, (24,))
    x = protos[y] + 0.5 * torch.randn(24, 3, 16, 16)
    if it and it % SYNC_EVERY == 0:
        model.sync()
    ce, gap = run(x, y)
    loss = ce + 0.3 * gap
    opt.zero_grad(set_to_none=True)
    loss.backward()
    opt.step()
    print(f"{it:02d} ce={ce.item():.4f} gap={gap.item():.4f}")
