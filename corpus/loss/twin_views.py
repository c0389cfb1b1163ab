"""Trains a SimSiam encoder on two noisy views of digit images; the embedding collapses to one point because the target branch also gets gradients.

Report: https://github.com/lightly-ai/lightly/issues/559 (the projections z0 and z1 in this SimSiam implementation should be detached, as the official code returns z.detach())
What is seen: the loss runs to -1 within some dozens of steps and the normalised embeddings of different images get a cosine of 0.999 (spread
0.03), with detached targets the loss stays near -0.73 and the spread above 0.6.
"""
import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import load_digits

EXPECT = {
    "framework": "plain", "kind": "embeddings-collapse", "line": ("cause", "CAUSE"),
    "what": "the stop-gradient on the target projections is missing, so both branches are pulled together and the representation collapses; detach z in the similarity",
    "set": "nineteenth", "written": "2026-11-27",
}


class SimSiam(nn.Module):
    def __init__(self, dim=64, hidden=32):
        super().__init__()
        self.backbone = nn.Sequential(nn.Linear(64, 128), nn.BatchNorm1d(128), nn.ReLU(), nn.Linear(128, 128), nn.BatchNorm1d(128), nn.ReLU())
        self.projector = nn.Sequential(nn.Linear(128, dim), nn.ReLU(), nn.Linear(dim, dim))
        self.predictor = nn.Sequential(nn.Linear(dim, hidden), nn.BatchNorm1d(hidden), nn.ReLU(), nn.Linear(hidden, dim))

    def forward(self, x1, x2):
        z1, z2 = self.projector(self.backbone(x1)), self.projector(self.backbone(x2))
        p1, p2 = self.predictor(z1), self.predictor(z2)
        return p1, p2, z1, z2  # OTHER


def similarity(p, z):
    return -F.cosine_similarity(p, z, dim=-1).mean()  # CAUSE


def augment(x, gen):
    images = x.view(-1, 8, 8)
    shift = torch.randint(-1, 2, (2,), generator=gen).tolist()
    images = torch.roll(images, shift, (1, 2)).reshape(x.shape)
    drop = (torch.rand(x.shape, generator=gen) > 0.15).float()
    return images * drop + 0.1 * torch.randn(x.shape, generator=gen)


@torch.no_grad()
def spread_of(model, x):
    model.eval()
    z = F.normalize(model.projector(model.backbone(x)), dim=1)
    model.train()
    return z.std(0).mean().item() * z.shape[1] ** 0.5, (z[:500] @ z[500:1000].t()).mean().item()


def main():
    torch.manual_seed(2)
    gen = torch.Generator().manual_seed(2)
    digits = load_digits()
    x = torch.tensor(digits.data, dtype=torch.float32) / 16
    order = torch.randperm(len(x), generator=gen)
    x = x[order]
    model = SimSiam()
    epochs, per_epoch = 12, 1200 // 100
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9, weight_decay=1e-4)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs * per_epoch)
    print("start: spread %.3f cosine of different images %.3f" % spread_of(model, x))
    for epoch in range(epochs):
        for idx in torch.randperm(1200, generator=gen).split(100):
            p1, p2, z1, z2 = model(augment(x[idx], gen), augment(x[idx], gen))
            loss = 0.5 * (similarity(p1, z2) + similarity(p2, z1))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            scheduler.step()
        spread, cosine = spread_of(model, x)
        if epoch % 2 == 1:
            print(f"epoch {epoch} loss {loss.item():.4f} spread {spread:.3f} cosine {cosine:.4f}")


main()
