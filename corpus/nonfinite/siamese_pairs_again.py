"""Siamese net on digit pairs with a contrastive loss: after a while the weights and the loss turn NaN.
Report: https://github.com/adambielski/siamese-triplet/issues/18 (the derivative of sqrt at distance 0 gives NaN when a pair holds the same sample twice)
When a positive pair is made of the same image twice, the distance is exactly 0, sqrt has an infinite slope there, 0 * inf is NaN and
one such pair spoils all weights; the run prints NaN from then on (the run with an epsilon ends near loss 0.07).
"""
import torch
import torch.nn as nn
from sklearn.datasets import load_digits

EXPECT = {
    "framework": "plain", "kind": "nonfinite-backward", "line": ("cause", "CAUSE"),
    "what": "the square root of a squared distance that is exactly 0 (a pair of identical images) has an infinite derivative and makes the gradient NaN; add an epsilon inside the sqrt",
    "set": "twentyfirst", "written": "2026-11-27",
}


class EmbeddingNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 32, 3, padding=1), nn.ReLU())
        self.fc = nn.Sequential(nn.Flatten(), nn.Linear(32 * 16, 64), nn.ReLU(), nn.Linear(64, 16))

    def forward(self, x):
        return self.fc(self.conv(x))


class ContrastiveLoss(nn.Module):
    def __init__(self, margin=1.0):
        super().__init__()
        self.margin = margin

    def forward(self, a, b, same):
        d = (a - b).pow(2).sum(dim=1).sqrt()  # CAUSE
        return 0.5 * (same * d.pow(2) + (1 - same) * torch.relu(self.margin - d).pow(2)).mean()


class PairSampler:
    def __init__(self, images, labels, seed):
        self.images, self.labels = images, labels
        self.by_class = [torch.nonzero(labels == c).squeeze(1) for c in range(10)]
        self.rng = torch.Generator().manual_seed(seed)

    def draw(self, n):
        first = torch.randint(0, len(self.images), (n,), generator=self.rng)
        same = torch.rand(n, generator=self.rng) < 0.35
        second = torch.randint(0, len(self.images), (n,), generator=self.rng)
        for i in torch.nonzero(same).squeeze(1).tolist():
            pool = self.by_class[self.labels[first[i]]]
            second[i] = pool[torch.randint(0, len(pool), (1,), generator=self.rng)]  # OTHER
        target = (self.labels[first] == self.labels[second]).float()
        return self.images[first], self.images[second], target


def main():
    torch.manual_seed(0)
    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16.0
    labels = torch.tensor(digits.target)
    sampler = PairSampler(images, labels, seed=SEED)
    model, criterion = EmbeddingNet(), ContrastiveLoss()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for step in range(220):
        a, b, same = sampler.draw(16)
        loss = criterion(model(a), model(b), same)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 0:
            print(f"step {step:3d} loss {loss.item():.4f}")
    print("all weights finite:", all(torch.isfinite(p).all().item() for p in model.parameters()))


SEED = 6
if __name__ == "__main__":
    main()
