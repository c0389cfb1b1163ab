"""The Euclidean distance is a bare sqrt of a sum of squares; when the sampler draws a lid as its own partner the
distance is 0, the gradient of sqrt is NaN and every weight becomes NaN.

Report: tensorflow/tensorflow issue 30199 (triplet loss NaN gradients when anchor equals positive) and PyTorch forum
threads on the gradient of sqrt / norm at zero
"""

import torch
import torch.nn.functional as F
from torch import nn

EXPECT = {
    "kind": "nonfinite-backward",
    "line": ("cause", "HERE"),
    "plain": "with: every weight NaN from step 359 (first self-pair), nearest-lid accuracy 0.87 then 0.167; mended (1e-9 inside the sqrt): 0.890",
    "set": "twentyeighth",
    "written": "2026-11-29",
}


KINDS = 6


def press_lids(per_kind, seed):
    g = torch.Generator().manual_seed(seed)
    ring = torch.linspace(0, 6.2832, 33)[:-1]
    rows, kinds = [], []
    for kind in range(KINDS):
        phase = torch.rand(per_kind, 1, generator=g) * 6.2832
        depth = 0.6 + 0.4 * torch.rand(per_kind, 1, generator=g)
        wave = depth * torch.cos((kind + 2) * ring + phase)
        wave = wave + 0.35 * torch.cos(ring + 2 * phase) + 0.7 * torch.randn(per_kind, 32, generator=g)
        rows.append(wave)
        kinds.append(torch.full((per_kind,), kind))
    return torch.cat(rows), torch.cat(kinds)


class LidEncoder(nn.Module):
    def __init__(self, out=8):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv1d(1, 16, 7, padding=3, padding_mode="circular"), nn.GELU(),
            nn.Conv1d(16, 24, 5, padding=2, padding_mode="circular"), nn.GELU(),
        )
        self.head = nn.Linear(24, out)

    def forward(self, x):
        return self.head(self.features(x.unsqueeze(1)).mean(-1))


class TripletSampler:
    def __init__(self, kinds, seed):
        self.g = torch.Generator().manual_seed(seed)
        self.members = [torch.nonzero(kinds == k).flatten() for k in range(KINDS)]

    def pick(self, kind):
        pool = self.members[kind]
        return pool[torch.randint(len(pool), (1,), generator=self.g)].item()

    def draw(self, count):
        a, p, n = [], [], []
        for _ in range(count):
            kind = torch.randint(KINDS, (1,), generator=self.g).item()
            other = (kind + torch.randint(1, KINDS, (1,), generator=self.g).item()) % KINDS
            a.append(self.pick(kind))
            p.append(self.pick(kind))
            n.append(self.pick(other))
        return a, p, n


def distance(u, v):
    return (u - v).pow(2).sum(1).sqrt()  # HERE


def triplet_loss(za, zp, zn, margin=1.0):
    return F.relu(distance(za, zp) - distance(za, zn) + margin).mean()


@torch.no_grad()
def neighbour_accuracy(model, bank, bank_kinds, query, query_kinds):
    model.eval()
    gaps = torch.cdist(model(query), model(bank))
    found = bank_kinds[gaps.argmin(1)]
    model.train()
    return (found == query_kinds).float().mean().item()


def main():
    torch.manual_seed(0)
    lids, kinds = press_lids(2500, seed=1)
    bank, bank_kinds = press_lids(80, seed=2)
    query, query_kinds = press_lids(80, seed=3)
    model = LidEncoder()
    opt = torch.optim.Adam(model.parameters(), lr=2e-3)
    sampler = TripletSampler(kinds, seed=6)
    for step in range(500):
        a, p, n = sampler.draw(24)
        z = model(lids[a + p + n])
        loss = triplet_loss(*z.chunk(3))
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 50 == 0:
            accuracy = neighbour_accuracy(model, bank, bank_kinds, query, query_kinds)
            print(f"step {step:4d}  loss {loss.item():.4f}  nearest lid {accuracy:.3f}")
    accuracy = neighbour_accuracy(model, bank, bank_kinds, query, query_kinds)
    print(f"final nearest lid {accuracy:.3f}")


if __name__ == "__main__":
    main()
