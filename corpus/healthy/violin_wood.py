"""Healthy: a teacher under no_grad, and detached weights of losses."""
import copy

import torch
import torch.nn.functional as F
from torch import nn

EXPECT = {
    "kind": None,
    "set": "eighteen_classes",
    "written": "2026-11-29",
}


def planks(n, gen):
    grain = torch.randn(n, 6, generator=gen)
    tone = torch.sin(grain[:, 0]) + grain[:, 1] * grain[:, 2]
    weight = 30.0 * (grain[:, 3].abs() + 0.5 * grain[:, 4])
    kind = (tone > 0).long() + (grain[:, 5] > 0.5).long()
    return grain, tone, weight, kind


class Luthier(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(6, width), nn.GELU(), nn.Linear(width, width), nn.GELU())
        self.tone = nn.Linear(width, 1)
        self.weight = nn.Linear(width, 1)
        self.kind = nn.Linear(width, 3)

    def forward(self, x):
        h = self.body(x)
        return self.tone(h).squeeze(1), self.weight(h).squeeze(1), self.kind(h)


def losses(model, teacher, batch):
    x, tone, weight, kind = batch
    a, b, logits = model(x)
    parts = [F.mse_loss(a, tone), F.mse_loss(b, weight), F.cross_entropy(logits, kind)]
    with torch.no_grad():
        soft = F.softmax(teacher(x)[2], 1)
        agreement = (soft.argmax(1) == logits.argmax(1)).float().mean()
    parts.append(F.kl_div(F.log_softmax(logits, 1), soft, reduction="batchmean"))
    return parts, agreement


def main():
    torch.manual_seed(100)
    gen = torch.Generator().manual_seed(101)
    model = Luthier()
    teacher = copy.deepcopy(model).requires_grad_(False)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    typical = torch.ones(3)
    for step in range(600):
        parts, agreement = losses(model, teacher, planks(64, gen))
        size = torch.tensor([p.item() for p in parts[:3]])
        typical = typical.lerp(size, 0.1) if step else size
        loss = sum(p / s for p, s in zip(parts[:3], typical.clamp(min=1e-3)))
        loss = loss + 0.1 * parts[3]
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            for p, q in zip(teacher.parameters(), model.parameters()):
                p.lerp_(q, 0.02)
        if (step + 1) % 100 == 0:
            print(f"step {step + 1} tone {parts[0].item():.4f} weight {parts[1].item():.2f}"
                  f" kind {parts[2].item():.4f} agreement {agreement.item():.3f}")
    x, tone, weight, kind = planks(2000, gen)
    with torch.no_grad():
        a, b, logits = model(x)
    print(f"final tone mse {F.mse_loss(a, tone).item():.4f} weight mse {F.mse_loss(b, weight).item():.3f}"
          f" of {weight.var().item():.1f} kind accuracy {(logits.argmax(1) == kind).float().mean().item():.4f}")


if __name__ == "__main__":
    main()
