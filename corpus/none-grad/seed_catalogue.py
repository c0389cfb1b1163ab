"""Build_index(), first called at step 60, switches requires_grad off on the encoder that is still being trained and
nothing switches it on again; only the logit scale keeps moving, so no error appears.

Report: github.com/clovaai/deep-text-recognition-benchmark issue 47 (loop that sets requires_grad for validation and
must set it back) and similar forum threads
"""
import math

import torch
import torch.nn.functional as F
from torch import nn

EXPECT = {
    "kind": "none-grad",
    "line": ("cut", "HERE"),
    "plain": "recall@1 stays near 0.71 (loss 0.38) from step 240 on; 0.980 (loss 0.036) with the encoder switched on again",
    "set": "eighteen_classes",
    "written": "2026-11-29",
}


torch.manual_seed(12)
VARIETIES, TRAITS, DIM = 200, 20, 24


class SeedEncoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(32, 96),
            nn.LayerNorm(96),
            nn.GELU(),
            nn.Linear(96, 96),
            nn.GELU(),
            nn.Linear(96, DIM),
        )

    def forward(self, x):
        return F.normalize(self.net(x), dim=-1)


class LabelTower(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("words", torch.randn(TRAITS, DIM) / math.sqrt(TRAITS))

    def forward(self, t):
        return F.normalize(t @ self.words, dim=-1)


class Catalogue:
    def __init__(self, seed=0):
        self.g = torch.Generator().manual_seed(seed)
        self.traits = torch.randn(VARIETIES, TRAITS, generator=self.g)
        self.mix = torch.randn(TRAITS, 32, generator=self.g) / math.sqrt(TRAITS)

    def photos(self, which):
        z = self.traits[which]
        x = torch.tanh(1.5 * z @ self.mix) * 2
        return x + 0.8 * torch.randn(x.shape, generator=self.g)


def build_index(encoder, catalogue):
    encoder.eval()
    for p in encoder.parameters():
        p.requires_grad_(False)  # HERE
    photos = catalogue.photos(torch.arange(VARIETIES))
    index = encoder(photos)
    encoder.train()
    return index


def recall(index, labels, catalogue):
    with torch.no_grad():
        sims = labels(catalogue.traits) @ index.t()
    return (sims.argmax(1) == torch.arange(VARIETIES)).float().mean().item()


def main():
    catalogue = Catalogue()
    encoder, labels = SeedEncoder(), LabelTower()
    log_scale = nn.Parameter(torch.tensor(2.0))
    opt = torch.optim.Adam(
        [
            {"params": encoder.parameters(), "lr": 5e-4},
            {"params": [log_scale], "lr": 5e-3},
        ]
    )
    for step in range(1, 601):
        which = torch.randperm(VARIETIES, generator=catalogue.g)[:64]
        image = encoder(catalogue.photos(which))
        text = labels(catalogue.traits[which])
        logits = log_scale.exp() * image @ text.t()
        target = torch.arange(len(which))
        loss = 0.5 * (F.cross_entropy(logits, target) + F.cross_entropy(logits.t(), target))
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 60 == 0:
            index = build_index(encoder, catalogue)
            print(
                f"step {step:3d}  loss {loss.item():.3f}  scale {log_scale.exp().item():.1f}"
                f"  recall@1 {recall(index, labels, catalogue):.3f}"
            )


if __name__ == "__main__":
    main()
