"""Texture patches are standardised one by one. From step 150 on a few patches are flat, and their standard deviation is
zero. The loop skips batches with a NaN loss, as a colleague advised, and the training loss looks fine to the end. In
eval mode every output is NaN: the running statistics of BatchNorm took the NaN before the loss was known."""
import torch
import torch.nn as nn
import torch.nn.functional as F

EXPECT = {
    "class": "NaN in buffers after a skipped batch",
    "kind": "nonfinite-buffer",
    "line": ["cause", "cause"],
    "what": "A flat patch divided by its standard deviation of zero is NaN; the batch is skipped, but BatchNorm keeps the NaN.",
    "symptom": "no error; every output in eval mode is NaN",
    "set": "ledger",
    "written": "2026-11-27",
}

torch.manual_seed(3)
torch.set_num_threads(1)


class PatchNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.BatchNorm2d(8), nn.ReLU())
        self.head = nn.Linear(8, 4)

    def forward(self, x):
        return self.head(self.features(x).mean((2, 3)))


def patches(step):
    angle = torch.randint(0, 4, (24,))
    grid = torch.linspace(0, 6.3, 10)
    waves = torch.stack([torch.sin(grid[:, None] * (a % 2 + 1) + grid * (a // 2)) for a in angle.tolist()])
    waves = waves + 0.3 * torch.randn_like(waves)
    if step >= 150 and step % 40 == 0:
        waves[:2] = 0.5
    mean, std = waves.mean((1, 2), keepdim=True), waves.std((1, 2), keepdim=True)
    return ((waves - mean) / std).unsqueeze(1), angle  # <-- cause


model = PatchNet()
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
skipped = 0
for step in range(260):
    x, y = patches(step)
    loss = F.cross_entropy(model(x), y)
    if not torch.isfinite(loss):
        skipped += 1
        continue
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 65 == 64:
        print(f"step {step}  loss {loss.item():.3f}  skipped {skipped}")
model.eval()
with torch.no_grad():
    print("outputs in eval mode:", model(patches(0)[0])[0].tolist())
