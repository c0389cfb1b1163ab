"""Self-distillation with Sinkhorn-Knopp targets: the teacher's temperature goes down by a schedule, and one day exp of its scores over that temperature is larger than float32 knows.

Report: https://github.com/facebookresearch/dinov2/pull/583 (numerical overflow in sinkhorn_knopp_teacher: torch.exp(teacher_output / teacher_temp))
"""
import copy

import torch
from torch import nn
from torch.nn import functional as F

EXPECT = {
    "class": "born-without-gradient", "kind": "nonfinite-forward-poisons-backward", "source_marker": "BORN", "step": 107,
    "set": "eighth", "written": "2026-11-22",
}


class DINOHead(nn.Module):
    def __init__(self, inputs, hidden=32, bottleneck=12, prototypes=16):
        super().__init__()
        self.mlp = nn.Sequential(nn.Linear(inputs, hidden), nn.GELU(), nn.Linear(hidden, bottleneck))
        self.last = nn.Linear(bottleneck, prototypes, bias=False)

    def forward(self, x):
        return self.last(10 * F.normalize(self.mlp(x), dim=-1))


class SinkhornLoss(nn.Module):
    def __init__(self, student_temp=0.1):
        super().__init__()
        self.student_temp = student_temp

    @torch.no_grad()
    def targets(self, teacher_output, teacher_temp, iterations=3):
        Q = torch.exp(teacher_output / teacher_temp).t()  # BORN
        Q /= Q.sum()
        K, B = Q.shape
        for _ in range(iterations):
            Q /= Q.sum(1, keepdim=True)
            Q /= K
            Q /= Q.sum(0, keepdim=True)
            Q /= B
        return (Q * B).t()

    def forward(self, student_output, targets):
        return -(targets * F.log_softmax(student_output / self.student_temp, -1)).sum(-1).mean()


def teacher_temperature(step, warm=120, start=0.2, end=0.01):
    return end + (start - end) * max(0.0, 1 - step / warm)


def views(n=64):
    kind = torch.randint(0, 6, (n,))
    base = torch.nn.functional.one_hot(kind, 6).float().repeat(1, 3) * 2
    return base + 0.5 * torch.randn_like(base), base + 0.5 * torch.randn_like(base)


torch.manual_seed(0)
student = nn.Sequential(nn.Linear(18, 32), nn.GELU(), DINOHead(32))
teacher = copy.deepcopy(student).requires_grad_(False)
criterion = SinkhornLoss()
optimizer = torch.optim.AdamW(student.parameters(), lr=1e-3)
for step in range(160):
    a, b = views()
    with torch.no_grad():
        q_a, q_b = (criterion.targets(teacher(x), teacher_temperature(step)) for x in (a, b))
    loss = (criterion(student(a), q_b) + criterion(student(b), q_a)) / 2
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(student.parameters(), 3.0)
    optimizer.step()
    with torch.no_grad():
        for slow, fast in zip(teacher.parameters(), student.parameters()):
            slow.lerp_(fast, 0.01)
    if step % 20 == 0:
        print(step, loss.item(), teacher_temperature(step))
