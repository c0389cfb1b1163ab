"""Reentrant checkpointing gives a block gradients only if its input requires grad; the embedded codes come from fixed
tables, so all parameters of the blocks stay without gradient and only the classifier on top learns.

Report: github.com/huggingface/transformers issue 21381 and github.com/mlfoundations/open_clip issue 573 (None of the
inputs have requires_grad=True, mended by use_reentrant=False)
"""
import math

import torch
import torch.nn.functional as F
from accelerate import Accelerator
from torch import nn
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, TensorDataset

EXPECT = {
    "kind": "none-grad",
    "line": ("cut", "HERE"),
    "plain": "validation accuracy 0.58 after 6 epochs as it is (only norm and head have gradients), 1.00 with use_reentrant=False",
    "set": "eighteen_classes",
    "written": "2026-11-29",
}


torch.manual_seed(13)
LEVELS, DAYS, WIDTH = 16, 14, 32


def snow_seasons(n, seed):
    """Fourteen days of coded snow depth; the class is the order in which depth 3 and depth 12 are reached."""
    g = torch.Generator().manual_seed(seed)
    codes = torch.randint(0, LEVELS, (n, DAYS), generator=g)
    codes = torch.where((codes == 3) | (codes == 12), codes + 1, codes)
    spots = torch.rand(n, DAYS, generator=g).argsort(1)
    rows = torch.arange(n)
    codes[rows, spots[:, 0]] = 3
    codes[rows, spots[:, 1]] = 12
    return codes, (spots[:, 0] < spots[:, 1]).long()


def ladder(rows, width):
    """Fixed sine table."""
    rate = torch.exp(torch.arange(0, width, 2) * (-math.log(100.0) / width))
    angle = torch.arange(rows).unsqueeze(1) * rate
    return torch.cat([angle.sin(), angle.cos()], dim=1)


class Block(nn.Module):
    def __init__(self, heads=4):
        super().__init__()
        self.norm1 = nn.LayerNorm(WIDTH)
        self.attend = nn.MultiheadAttention(WIDTH, heads, batch_first=True)
        self.norm2 = nn.LayerNorm(WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 2 * WIDTH), nn.GELU(), nn.Linear(2 * WIDTH, WIDTH))

    def forward(self, h):
        n = self.norm1(h)
        h = h + self.attend(n, n, n, need_weights=False)[0]
        return h + self.mlp(self.norm2(h))


class SeasonModel(nn.Module):
    def __init__(self, depth=2):
        super().__init__()
        codes = torch.randn(LEVELS, WIDTH, generator=torch.Generator().manual_seed(1))
        self.register_buffer("codes", codes)
        self.register_buffer("days", ladder(DAYS, WIDTH))
        self.blocks = nn.ModuleList(Block() for _ in range(depth))
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, 2)

    def forward(self, ids):
        h = self.codes[ids] + self.days
        for block in self.blocks:
            if self.training:
                h = checkpoint(block, h, use_reentrant=True)  # HERE
            else:
                h = block(h)
        return self.head(self.norm(h).mean(1))


@torch.no_grad()
def evaluate(model, codes, kind):
    model.eval()
    acc = (model(codes).argmax(1) == kind).float().mean().item()
    model.train()
    return acc


def main():
    accelerator = Accelerator(cpu=True)
    codes, kind = snow_seasons(4000, 0)
    valid = snow_seasons(600, 1)
    loader = DataLoader(TensorDataset(codes, kind), batch_size=64, shuffle=True)
    model = SeasonModel()
    opt = torch.optim.AdamW(model.parameters(), lr=3e-3)
    model, opt, loader = accelerator.prepare(model, opt, loader)
    for epoch in range(6):
        for xb, yb in loader:
            loss = F.cross_entropy(model(xb), yb)
            opt.zero_grad()
            accelerator.backward(loss)
            accelerator.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
        print(f"epoch {epoch}  loss {loss.item():.3f}  valid acc {evaluate(model, *valid):.3f}")


if __name__ == "__main__":
    main()
