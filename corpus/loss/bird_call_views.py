"""The SimSiam targets are not detached, so the branches are pulled together from both sides and the embedding collapses
to a constant while the loss looks perfect.

Report: SimSiam without stop-gradient; facebookresearch/simsiam issue #7 and lucidrains/byol-pytorch issue #44 on
collapse
"""
import torch
import torch.nn.functional as F
from torch import nn

EXPECT = {
    "kind": "embeddings-collapse",
    "line": ("cause", "HERE"),
    "plain": "loss -0.9995, embedding spread 0.005, knn 0.15; with z.detach() loss -0.90, spread 0.152, knn 0.47",
    "set": "twentyseventh",
    "written": "2026-11-29",
}


class Aviary:
    """Each individual sings its own call; every recording differs in phase, gain and noise."""

    def __init__(self, gen, species=10, length=64):
        self.gen = gen
        self.t = torch.linspace(0, 1, length)
        self.song = torch.rand(species, 3, generator=gen) * torch.tensor([6.0, 5.0, 4.0]) + 1.0

    def individuals(self, n):
        label = torch.randint(0, len(self.song), (n,), generator=self.gen)
        return self.song[label] + 0.1 * torch.randn(n, 3, generator=self.gen), label

    def record(self, who):
        n = len(who)
        lo, sweep, pulse = (who[:, i:i + 1] for i in range(3))
        phase = torch.rand(n, 1, generator=self.gen) * 6.28
        sig = torch.sin(6.28 * (lo * self.t + sweep * self.t ** 2) + phase)
        sig = sig * (0.6 + 0.4 * torch.sin(6.28 * pulse * self.t))
        gain = 0.6 + 0.8 * torch.rand(n, 1, generator=self.gen)
        return sig * gain + 0.4 * torch.randn(sig.shape, generator=self.gen)


class Siamese(nn.Module):
    def __init__(self, n_in=64, dim=32):
        super().__init__()
        self.backbone = nn.Sequential(
            nn.Linear(n_in, 128), nn.BatchNorm1d(128), nn.ReLU(),
            nn.Linear(128, 64), nn.BatchNorm1d(64), nn.ReLU(),
        )
        self.projector = nn.Sequential(nn.Linear(64, 64), nn.BatchNorm1d(64), nn.ReLU(),
                                       nn.Linear(64, dim))
        self.predictor = nn.Sequential(nn.Linear(dim, 16), nn.BatchNorm1d(16), nn.ReLU(),
                                       nn.Linear(16, dim))

    def embed(self, x):
        return self.projector(self.backbone(x))

    def forward(self, v1, v2):
        z1, z2 = self.embed(v1), self.embed(v2)
        return self.predictor(z1), self.predictor(z2), z1, z2


def neg_cos(p, z):
    return -F.cosine_similarity(p, z, dim=1).mean()  # HERE


def knn_score(model, x, y, xt, yt, k=3):
    model.eval()
    with torch.no_grad():
        a = F.normalize(model.embed(x), dim=1)
        b = F.normalize(model.embed(xt), dim=1)
    model.train()
    near = (b @ a.T).topk(k, dim=1).indices
    vote = y[near].mode(dim=1).values
    return (vote == yt).float().mean().item(), b.std(0).mean().item()


def main():
    torch.manual_seed(2)
    gen = torch.Generator().manual_seed(21)
    aviary = Aviary(gen)
    birds, _ = aviary.individuals(1500)
    known, y = aviary.individuals(60)
    unseen, yt = aviary.individuals(400)
    x, xt = aviary.record(known), aviary.record(unseen)
    model = Siamese()
    opt = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)

    for step in range(600):
        idx = torch.randint(0, len(birds), (128,), generator=gen)
        v1, v2 = aviary.record(birds[idx]), aviary.record(birds[idx])
        p1, p2, z1, z2 = model(v1, v2)
        loss = 0.5 * (neg_cos(p1, z2) + neg_cos(p2, z1))
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 100 == 0 or step == 599:
            acc, spread = knn_score(model, x, y, xt, yt)
            print(f"step {step:3d}  loss {loss.item():.4f}  knn {acc:.3f}  spread {spread:.4f}")


if __name__ == "__main__":
    main()
