"""float16 autocast with a loss scaler; the task changes in the middle, the loss jumps and comes back.

Source: https://github.com/pytorch/pytorch/issues/41508 (masked attention, here used correctly); loss scaling with skipped
        steps is described in https://docs.pytorch.org/docs/stable/amp.html
Plain PyTorch 2.13: some early steps are skipped by the scaler (Inf in scaled gradients), the loss falls, jumps, falls.
"""
import torch
from torch import nn
from torch.nn import functional as F

EXPECT = {"class": "healthy", "kind": "none", "plain": {"outcome": "ok"}, "set": "thirteenth", "written": "2026-11-25"}


class Reader(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.embed = nn.Embedding(30, width, padding_idx=0)
        self.place = nn.Parameter(torch.zeros(1, 10, width))
        self.attend = nn.MultiheadAttention(width, 4, batch_first=True)
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 64), nn.GELU(), nn.Linear(64, width))
        self.gate = nn.Parameter(torch.zeros(width))
        self.out = nn.Linear(width, 5)

    def forward(self, tokens):
        padding = tokens == 0
        h = self.embed(tokens) + self.place
        a, _ = self.attend(*[self.norm1(h)] * 3, key_padding_mask=padding, need_weights=False)
        h = h + a
        h = h + self.gate * self.mlp(self.norm2(h))
        keep = (~padding).unsqueeze(-1)
        return self.out((h * keep).sum(1) / keep.sum(1))


def texts(generator, switched, count=32):
    tokens = torch.randint(1, 30, (count, 10), generator=generator)
    length = torch.randint(3, 11, (count, 1), generator=generator)
    tokens[torch.arange(10) >= length] = 0
    votes = torch.stack([((tokens % 5 == k) & (tokens > 0)).sum(1) for k in range(5)], 1)
    label = votes.argmax(1)
    return tokens, (4 - label if switched else label)


@torch.no_grad()
def score(model, generator, switched):
    model.eval()
    tokens, label = texts(generator, switched, 400)
    right = (model(tokens).argmax(1) == label).float().mean().item()
    model.train()
    return right


def main():
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(3)
    model = Reader()
    opt = torch.optim.Adam(model.parameters(), lr=3e-3)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**22, growth_interval=120)
    shadow = torch.optim.swa_utils.AveragedModel(model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.98))
    for step in range(600):
        switched = step >= 300
        tokens, label = texts(generator, switched)
        with torch.autocast("cpu", dtype=torch.float16):
            loss = F.cross_entropy(model(tokens).float(), label)
        opt.zero_grad()
        scaler.scale(loss).backward()
        scaler.unscale_(opt)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(opt)
        scaler.update()
        shadow.update_parameters(model)
        if step % 50 == 0 or step == 300:
            print(step, f"{loss.item():.4f}", f"scale {scaler.get_scale():g}", f"{score(model, generator, switched):.3f}", flush=True)


if __name__ == "__main__":
    main()
