"""Trains a siamese network on pairs of digits with a contrastive loss; the Euclidean distance is a bare sqrt of a sum of
squares, so the first pair that holds the same picture twice has distance 0, the gradient is NaN, and from then on all
weights and the loss are NaN.

Report: https://github.com/huggingface/sentence-transformers/pull/4033 (differentiating sqrt(sum(square(difference))) at
zero gives NaN gradients for identical embeddings)
"""
import torch
import torch.nn as nn
from sklearn.datasets import load_digits
from torch.utils.data import Dataset, DataLoader

EXPECT = {
    "framework": "plain", "kind": "nonfinite-backward", "line": ("cause", "CAUSE"),
    "what": "torch.sqrt of an exactly zero squared distance (a pair of identical images) has an infinite derivative and makes the gradient NaN; add an eps inside the sqrt.",
    "set": "twentysecond", "written": "2026-11-28",
}


class PairDataset(Dataset):
    def __init__(self, images, labels, n_pairs, seed):
        self.images, self.labels = images, labels
        g = torch.Generator().manual_seed(seed)
        self.by_class = [torch.where(labels == c)[0] for c in range(10)]
        self.pairs = []
        for i in range(n_pairs):
            a = torch.randint(len(images), (1,), generator=g).item()
            same = i % 2 == 0
            pool = self.by_class[labels[a]] if same else torch.where(labels != labels[a])[0]
            b = pool[torch.randint(len(pool), (1,), generator=g)].item()
            self.pairs.append((a, b, float(same)))

    def __len__(self):
        return len(self.pairs)

    def __getitem__(self, i):
        a, b, same = self.pairs[i]
        return self.images[a], self.images[b], torch.tensor(same)


class Embedder(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
                                      nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(512, 16))

    def forward(self, x):
        return self.features(x)


class ContrastiveLoss(nn.Module):
    def __init__(self, margin=2.0):
        super().__init__()
        self.margin = margin

    def forward(self, e1, e2, same):
        dist = torch.sqrt(((e1 - e2) ** 2).sum(dim=1))  # CAUSE
        return (same * dist ** 2 + (1 - same) * torch.relu(self.margin - dist) ** 2).mean()


if __name__ == "__main__":
    torch.manual_seed(0)
    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16
    labels = torch.tensor(digits.target)
    loader = DataLoader(PairDataset(images[:1400], labels[:1400], 3200, seed=4), batch_size=8)
    net, criterion = Embedder(), ContrastiveLoss()
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    for step, (x1, x2, same) in enumerate(loader):
        loss = criterion(net(x1), net(x2), same)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 0:
            print(f"step {step:3d} loss {loss.item():.4f}")
    with torch.no_grad():
        bank, query = net(images[:1400]), net(images[1400:])
    nearest = torch.cdist(query, bank).argmin(1)
    print(f"1-NN accuracy {(labels[:1400][nearest] == labels[1400:]).float().mean().item():.3f}")
