"""Siamese network with a contrastive loss on image pairs; the distances go NaN after a while.

Source: https://github.com/adambielski/siamese-triplet/issues/18 (same: https://github.com/pytorch/pytorch/issues/37154)
"""
from dataclasses import dataclass

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

EXPECT = {
    "class": "a", "kind": "nonfinite-backward", "node": "SqrtBackward0", "source_marker": "CULPRIT", "step": 157,
    "plain": {"outcome": "silent"},
    "set": "twelfth", "written": "2026-11-25",
}


@dataclass
class Config:
    n_images: int = 600
    n_pairs: int = 6400
    batch_size: int = 16
    margin: float = 1.0
    lr: float = 1e-3
    seed: int = 11


class PairDataset(Dataset):
    def __init__(self, cfg):
        g = torch.Generator().manual_seed(cfg.seed)
        self.labels = torch.arange(cfg.n_images) % 12
        protos = torch.randn(12, 1, 12, 12, generator=g)
        self.images = protos[self.labels] + 0.7 * torch.randn(cfg.n_images, 1, 12, 12, generator=g)
        left = torch.randint(0, cfg.n_images, (cfg.n_pairs,), generator=g)
        shift = torch.randint(1, cfg.n_images // 12, (cfg.n_pairs,), generator=g) * 12
        offset = torch.randint(0, 2, (cfg.n_pairs,), generator=g)
        right = (left + shift + offset) % cfg.n_images
        left[3587], right[3587] = 77, 77
        self.pairs = torch.stack([left, right], 1)

    def __len__(self):
        return len(self.pairs)

    def __getitem__(self, i):
        a, b = self.pairs[i]
        return self.images[a], self.images[b], (self.labels[a] == self.labels[b]).float()


class EmbeddingNet(nn.Module):
    def __init__(self, dim=16):
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(1, 8, 3), nn.PReLU(), nn.MaxPool2d(2), nn.Flatten())
        self.fc = nn.Sequential(nn.Linear(200, 64), nn.PReLU(), nn.Linear(64, dim, bias=False))

    def forward(self, x):
        return self.fc(self.features(x))


class ContrastiveLoss(nn.Module):
    def __init__(self, margin):
        super().__init__()
        self.margin = margin

    def forward(self, a, b, same):
        dist = (a - b).pow(2).sum(1).sqrt()  # CULPRIT
        loss = same * dist.pow(2) + (1 - same) * (self.margin - dist).clamp(min=0).pow(2)
        return 0.5 * loss.mean()


def main(cfg=Config()):
    torch.manual_seed(cfg.seed)
    loader = DataLoader(PairDataset(cfg), cfg.batch_size, shuffle=True)
    net, criterion = EmbeddingNet(), ContrastiveLoss(cfg.margin)
    opt = torch.optim.Adam(net.parameters(), lr=cfg.lr)
    for step, (a, b, same) in enumerate(loader):
        opt.zero_grad()
        loss = criterion(net(a), net(b), same)
        loss.backward()
        opt.step()
        if step % 40 == 0:
            print(f"step {step:4d} loss {loss.item():.4f}")
        if step == 320:
            break


if __name__ == "__main__":
    main()
