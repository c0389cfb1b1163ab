"""Finds the four corners of a tilted quadrilateral in 20x20 images; all four heads predict the same point.

Report: https://github.com/linkedin/Liger-Kernel/pull/269 (a list built from one module holds references to the same
weights, every Medusa head shares its ResBlock), https://github.com/IDEA-Research/DAB-DETR/pull/17

[head] * 4 repeats one module, so the gradients of all four corners add up in the same weights and each head outputs
the mean corner. The mean corner error stays at 6.7 pixels; with four separate heads it falls to 0.9.
"""
import torch
from torch import nn
from torch.optim.lr_scheduler import LinearLR

EXPECT = {
    "framework": "plain", "kind": "module-repeated", "line": ("cause", "CAUSE"),
    "what": "nn.ModuleList([head] * 4) holds the same module four times, so all corner heads share one set of weights and get the sum of contradicting gradients; build a separate head for each corner.",
    "set": "twentieth", "written": "2026-11-27",
}

SIZE = 20


def draw(n, gen):
    base = torch.tensor([[5.0, 5.0], [14.0, 5.0], [14.0, 14.0], [5.0, 14.0]])
    corners = base + torch.empty(n, 4, 2).uniform_(-3.5, 3.5, generator=gen)
    yy, xx = torch.meshgrid(torch.arange(SIZE).float(), torch.arange(SIZE).float(), indexing="ij")
    inside = torch.ones(n, SIZE, SIZE, dtype=torch.bool)
    for k in range(4):
        a, b = corners[:, k], corners[:, (k + 1) % 4]
        edge = (b - a)[:, :, None, None]
        side = edge[:, 0] * (yy - a[:, 1, None, None]) - edge[:, 1] * (xx - a[:, 0, None, None])
        inside &= side >= 0
    image = inside.float() + 0.05 * torch.randn(n, SIZE, SIZE, generator=gen)
    return image[:, None], corners / SIZE


class CornerNet(nn.Module):
    def __init__(self, width=16, feat=64):
        super().__init__()
        self.backbone = nn.Sequential(
            nn.Conv2d(1, width, 3, stride=2, padding=1), nn.ReLU(),
            nn.Conv2d(width, 2 * width, 3, stride=2, padding=1), nn.ReLU(),
            nn.Flatten(), nn.Linear(2 * width * 25, feat), nn.ReLU(),
        )
        head = nn.Sequential(nn.Linear(feat, 32), nn.ReLU(), nn.Linear(32, 2))
        self.heads = nn.ModuleList([head] * 4)  # CAUSE

    def forward(self, x):
        f = self.backbone(x)
        return torch.stack([h(f) for h in self.heads], dim=1)


def corner_error(model, x, corners):
    with torch.no_grad():
        return (model(x) - corners).norm(dim=2).mean().item() * SIZE


def main(steps=240, batch=64):
    torch.manual_seed(0)
    gen = torch.Generator().manual_seed(0)
    model = CornerNet()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    warmup = LinearLR(optimizer, start_factor=0.1, total_iters=20)
    x, corners = draw(2048, gen)
    x_val, corners_val = draw(256, gen)
    for step in range(steps):
        idx = torch.randint(0, len(x), (batch,), generator=gen)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            pred = model(x[idx])
        loss = nn.functional.smooth_l1_loss(pred.float(), corners[idx], beta=0.05)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        warmup.step()
        if (step + 1) % 40 == 0:
            print(f"step {step + 1} loss {loss.item():.4f} corner error {corner_error(model, x_val, corners_val):.2f} px")


if __name__ == "__main__":
    main()
