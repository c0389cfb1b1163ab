"""An autoencoder of digits rounds its codes, and its straight-through step has the two values exchanged."""
import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import load_digits

EXPECT = {
    "class": "straight-through-reversed", "kind": "zero-grad", "line": ("cut", "HERE"),
    "set": "twentyninth", "written": "2026-11-29",
}

class Compartments(nn.Module):
    """Every channel of the feature map goes into one of a few compartments."""

    def __init__(self, half=2):
        super().__init__()
        self.half = half

    def squash(self, z):
        return torch.tanh(z) * self.half

    def forward(self, z):
        z = self.squash(z)
        snapped = torch.round(z)
        return snapped + (z - snapped).detach()  # HERE

    def index(self, z):
        return torch.round(self.squash(z)).long() + self.half

    def lookup(self, index):
        return (index - self.half).float()


class ButtonBox(nn.Module):
    def __init__(self, width=32, dim=2):
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Conv2d(1, width, 3, padding=1), nn.ReLU(),
            nn.Conv2d(width, width, 4, stride=2, padding=1), nn.ReLU(),
            nn.Conv2d(width, width, 4, stride=2, padding=1), nn.ReLU(),
            nn.Conv2d(width, dim, 1), nn.BatchNorm2d(dim),
        )
        self.codes = Compartments()
        self.decoder = nn.Sequential(
            nn.Conv2d(dim, width, 1), nn.ReLU(),
            nn.ConvTranspose2d(width, width, 4, stride=2, padding=1), nn.ReLU(),
            nn.ConvTranspose2d(width, width, 4, stride=2, padding=1), nn.ReLU(),
            nn.Conv2d(width, 1, 3, padding=1),
        )

    def forward(self, x):
        return self.decoder(self.codes(self.encoder(x)))

    @torch.no_grad()
    def store(self, x):
        return self.codes.index(self.encoder(x))

    @torch.no_grad()
    def restore(self, index):
        return self.decoder(self.codes.lookup(index))


def pictures():
    images = torch.tensor(load_digits().images, dtype=torch.float32).unsqueeze(1) / 16.0
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(1))
    return images[order[:1500]], images[order[1500:]]


def main():
    torch.manual_seed(3)
    train, test = pictures()
    model = ButtonBox()
    opt = torch.optim.Adam(model.parameters(), lr=2e-3)
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, 12 * 30, eta_min=1e-4)
    for epoch in range(12):
        model.train()
        perm = torch.randperm(len(train))
        total = 0.0
        for i in range(0, len(train), 50):
            x = train[perm[i : i + 50]]
            loss = F.mse_loss(model(x), x)
            opt.zero_grad()
            loss.backward()
            opt.step()
            sched.step()
            total += loss.item()
        model.eval()
        err = F.mse_loss(model.restore(model.store(test)), test).item()
        print(f"epoch {epoch} reconstruction {total / 30:.4f} test picture from stored codes {err:.4f}")


if __name__ == "__main__":
    main()
