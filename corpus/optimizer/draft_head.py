"""Trains a small draft head entirely in bfloat16; the gains of its norm layers stay at exactly 1.0.

Report: https://github.com/vllm-project/speculators/pull/765 (training fully in bf16 leaves all normalization weights at 1.0, because the update is smaller than the step from 1.0 to the next bf16 number)

Effect: no norm gain moves from 1.0 (in float32 they move by more than 0.1), and the error stays several times as high.
"""
import torch
import torch.nn as nn
import torch.nn.functional as F

EXPECT = {
    "framework": "plain", "kind": "update-rounds-away", "line": ("cause", "CAUSE"),
    "what": "The weights themselves are bfloat16, so updates of about 1e-3 on gains of 1.0 are rounded away; keep the parameters in float32 and use autocast for the computation.",
    "set": "eighteenth", "written": "2026-11-27",
}

DIM = 32


class RMSNorm(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))

    def forward(self, x):
        return x * torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + 1e-6).to(x.dtype) * self.weight


class DraftHead(nn.Module):
    def __init__(self):
        super().__init__()
        self.input_norm = RMSNorm(DIM)
        self.mix = nn.Linear(DIM, DIM, bias=False)
        self.out_norm = RMSNorm(DIM)
        nn.init.zeros_(self.mix.weight)

    def forward(self, x):
        h = self.input_norm(x)
        return self.out_norm(h + self.mix(h))


def make_data(n, gen):
    x = torch.randn(n, DIM, generator=gen)
    gain = torch.linspace(0.4, 1.6, DIM)
    return x, x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True)) * gain


def main():
    torch.manual_seed(0)
    gen = torch.Generator().manual_seed(7)
    head = DraftHead()
    head = head.to(torch.bfloat16)  # CAUSE
    dtype = next(head.parameters()).dtype
    opt = torch.optim.AdamW(head.parameters(), lr=1e-3, weight_decay=0.0)
    for step in range(300):
        x, y = make_data(128, gen)
        out = head(x.to(dtype))
        loss = F.mse_loss(out.float(), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if (step + 1) % 100 == 0:
            moved = max((m.weight.float() - 1).abs().max().item() for m in (head.input_norm, head.out_norm))
            print(f"step {step + 1} loss {loss.item():.4f} largest move of a norm gain {moved:.4f}")


if __name__ == "__main__":
    main()
