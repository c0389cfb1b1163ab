"""Reentrant checkpoint of the first block: its input is an image that needs no gradient, so the block never trains."""

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

EXPECT = {"kind": "none-grad", "line": ("cut", "CUT")}


class Visual(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.patch = nn.Conv2d(3, d, 4, stride=4)
        self.block = nn.Sequential(nn.Linear(d, d), nn.GELU(), nn.Linear(d, d))

    def body(self, image):
        return self.block(self.patch(image).flatten(2).mean(2))

    def forward(self, image):
        return checkpoint(self.body, image, use_reentrant=True)  # CUT


class Clip(nn.Module):
    def __init__(self, d=8):
        super().__init__()
        self.visual, self.text = Visual(d), nn.EmbeddingBag(30, d)
        self.scale = nn.Parameter(torch.tensor(1.0))

    def forward(self, image, tokens):
        return self.scale * self.visual(image) @ self.text(tokens).t()


def main():
    torch.manual_seed(0)
    model = Clip()
    opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for _ in range(3):
        logits = model(torch.rand(4, 3, 8, 8), torch.randint(0, 30, (4, 5)))
        loss = nn.functional.cross_entropy(logits, torch.arange(4))
        opt.zero_grad()
        loss.backward()
        opt.step()
    none = [n for n, p in model.named_parameters() if p.grad is None]
    return {"reproduced": len(none) == 6, "none": none}


if __name__ == "__main__":
    print(main())
