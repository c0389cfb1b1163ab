"""Two-stage image model: a small conv encoder is trained as an autoencoder, then frozen (batch norm included) and a head is trained on cached features.
Report: none (healthy: the encoder is frozen on purpose, it stays in eval mode through an overridden train(), and the cached features are valid because the encoder no longer changes)
"""
import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import load_digits

EXPECT = {"framework": "plain", "kind": None, "set": "twentyfirst", "written": "2026-11-27"}


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.frozen = False
        self.conv = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(),
            nn.Conv2d(16, 16, 3, stride=2, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.Flatten(), nn.Linear(256, 24),
        )

    def freeze(self):
        self.frozen = True
        self.requires_grad_(False)
        return self.eval()

    def train(self, mode=True):
        return super().train(mode and not self.frozen)

    def forward(self, x):
        return self.conv(x)


class Classifier(nn.Module):
    def __init__(self, encoder):
        super().__init__()
        self.encoder = encoder
        self.head = nn.Sequential(nn.Linear(24, 48), nn.ReLU(), nn.Dropout(0.1), nn.Linear(48, 10))

    def forward(self, x):
        return self.head(self.encoder(x))


def main():
    torch.manual_seed(0)
    digits = load_digits()
    x = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16.0
    y = torch.tensor(digits.target)

    encoder, decoder = Encoder(), nn.Sequential(nn.Linear(24, 96), nn.ReLU(), nn.Linear(96, 64))
    optimizer = torch.optim.Adam([*encoder.parameters(), *decoder.parameters()], lr=3e-3)
    for step in range(150):
        batch = x[torch.randint(0, 1400, (64,))]
        loss = F.mse_loss(decoder(encoder(batch)), batch.flatten(1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 50 == 0:
            print(f"autoencoder step {step:3d} loss {loss.item():.4f}")

    model = Classifier(encoder.freeze())
    with torch.no_grad():
        cache = torch.cat([model.encoder(part) for part in x[:1400].split(200)])
    head_optimizer = torch.optim.Adam(model.head.parameters(), lr=5e-3)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(head_optimizer, T_max=200)
    for step in range(200):
        model.train()
        pick = torch.randint(0, 1400, (64,))
        loss = F.cross_entropy(model.head(cache[pick]), y[pick])
        head_optimizer.zero_grad()
        loss.backward()
        head_optimizer.step()
        scheduler.step()
        if (step + 1) % 50 == 0:
            model.eval()
            with torch.no_grad():
                acc = (model(x[1400:]).argmax(1) == y[1400:]).float().mean().item()
            print(f"head step {step + 1:3d} loss {loss.item():.4f} test accuracy {acc:.3f}")


if __name__ == "__main__":
    main()
