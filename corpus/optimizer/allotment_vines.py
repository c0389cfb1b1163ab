"""The encoder is frozen at step 150 right after a backward; its .grad tensors stay, the clearing loop covers trainable
parameters only, so Adam keeps applying the same old gradient to the frozen encoder.

Report: neuralmagic/sparseml issue #965 (params frozen after backward are still updated); facebookresearch/fairseq
issue #4702
"""
import torch
import torch.nn.functional as F
from torch import nn

EXPECT = {
    "kind": "stale-gradient",
    "line": ("frozen", "HERE"),
    "plain": "final accuracy 0.764, leaf mse 4.757 (encoder drifts after step 150); 0.993 and 0.024 when the encoder's gradients are set to None at the freeze",
    "set": "eighteen_classes",
    "written": "2026-11-29",
}


STEPS, FREEZE_AT = 700, 150


def vine_images(n, gen):
    kind = torch.randint(0, 4, (n,), generator=gen)
    grid = torch.linspace(-1, 1, 12)
    yy, xx = torch.meshgrid(grid, grid, indexing="ij")
    angle = kind.float() * torch.pi / 4 + 0.15 * torch.randn(n, generator=gen)
    phase = torch.rand(n, generator=gen) * 6.28
    wave = torch.sin(7 * (xx[None] * angle.cos()[:, None, None] + yy[None] * angle.sin()[:, None, None]) + phase[:, None, None])
    img = wave + 0.6 * torch.randn(n, 12, 12, generator=gen)
    leaf = phase.sin() * 0.5 + kind.float() * 0.3
    return img[:, None], kind, leaf


class VineNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Conv2d(1, 12, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(12, 24, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten())
        self.kind = nn.Linear(24 * 9, 4)
        self.leaf = nn.Linear(24 * 9, 1)

    def forward(self, x):
        h = self.encoder(x)
        return self.kind(h), self.leaf(h).squeeze(1)


def trainable(model):
    return [p for p in model.parameters() if p.requires_grad]


def clear(params):
    for p in params:
        p.grad = None


def train():
    torch.manual_seed(17)
    gen = torch.Generator().manual_seed(4)
    model = VineNet()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    for step in range(STEPS):
        img, kind, leaf = vine_images(48, gen)
        logits, size = model(img)
        loss = F.cross_entropy(logits, kind) + F.mse_loss(size, leaf)
        clear(trainable(model))
        loss.backward()
        if step == FREEZE_AT:
            model.encoder.requires_grad_(False)  # HERE
            print(f"step {step}: training the heads only from here")
        optimizer.step()
        if (step + 1) % 100 == 0:
            acc = (logits.argmax(1) == kind).float().mean().item()
            print(f"step {step + 1:4d} loss {loss.item():.4f} batch accuracy {acc:.3f}")
    img, kind, leaf = vine_images(2000, gen)
    with torch.no_grad():
        logits, size = model(img)
    print(f"final accuracy {(logits.argmax(1) == kind).float().mean().item():.4f} leaf mse {F.mse_loss(size, leaf).item():.4f}")


if __name__ == "__main__":
    train()
