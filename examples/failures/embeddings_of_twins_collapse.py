"""Two views of each digit are drawn together, and neither is detached: all digits get the same embedding."""

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn

EXPECT = {"kind": "embeddings-collapse", "line": ("cause", "PULLS")}


def two_views(images):
    return [images * (torch.rand_like(images) > 0.2) for _ in range(2)]


def distance(prediction, target):
    return 1 - F.cosine_similarity(prediction, target, dim=-1).mean()  # PULLS


def main():
    torch.manual_seed(0)
    images = torch.tensor(load_digits().data).float() / 16
    encoder = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 24))
    predictor = nn.Sequential(nn.Linear(24, 12), nn.ReLU(), nn.Linear(12, 24))
    optimizer = torch.optim.Adam([*encoder.parameters(), *predictor.parameters()], lr=3e-3)
    for step in range(90):
        one, other = map(encoder, two_views(images[torch.randint(len(images), (64,))]))
        loss = distance(predictor(one), other) + distance(predictor(other), one)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
