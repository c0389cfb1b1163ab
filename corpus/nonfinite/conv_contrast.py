"""Small convnet on upscaled digits, growing cutout augmentation."""
import time
import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import load_digits

EXPECT = {
    "class": "late-nonfinite", "kind": "nonfinite-forward-poisons-backward", "source_marker": "CULPRIT", "step": 180,
    "set": "late_longer", "written": "2026-11-25",
}

torch.manual_seed(0)
raw = load_digits()
IMAGES = torch.tensor(raw.images, dtype=torch.float32).unsqueeze(1) / 16.0
IMAGES = F.interpolate(IMAGES, size=16, mode="nearest")
LABELS = torch.tensor(raw.target)


class ContrastNorm(nn.Module):
    def forward(self, x):
        mu = x.mean(dim=(1, 2, 3), keepdim=True)
        sd = x.std(dim=(1, 2, 3), keepdim=True)
        return (x - mu) / sd  # CULPRIT


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = ContrastNorm()
        self.conv1 = nn.Conv2d(1, 32, 3, padding=1)
        self.conv2 = nn.Conv2d(32, 48, 3, padding=1)
        self.conv3 = nn.Conv2d(48, 64, 3, padding=1)
        self.fc = nn.Linear(64 * 4 * 4, 10)

    def forward(self, x):
        x = self.norm(x)
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.relu(self.conv2(x))
        x = F.max_pool2d(F.relu(self.conv3(x)), 2)
        return self.fc(x.flatten(1))


def augment(x, step):
    x = x + 0.05 * torch.randn_like(x)
    k = min(16, 4 + 2 * (step // 30))
    n = x.shape[0] // 8
    for i in range(n):
        r = int(torch.randint(0, 16 - k + 1, ()))
        c = int(torch.randint(0, 16 - k + 1, ()))
        x[i, :, r:r + k, c:c + k] = 0.0
    return x


def main():
    net = Net()
    opt = torch.optim.SGD(net.parameters(), lr=0.02, momentum=0.9)
    t0 = time.time()
    for step in range(400):
        idx = torch.randint(0, len(IMAGES), (80,))
        x, y = augment(IMAGES[idx], step), LABELS[idx]
        loss = F.cross_entropy(net(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 50 == 49:
            print(f"step {step} loss {loss.item():.4f} {(time.time() - t0) / (step + 1) * 1e3:.1f} ms/step")


if __name__ == "__main__":
    main()
