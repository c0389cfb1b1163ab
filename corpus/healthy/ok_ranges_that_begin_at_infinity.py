"""State beside the parameters that is as meant: an observer whose range begins at infinity and minus infinity, a codebook
whose unused codes keep their place, and a hidden state carried from step to step, detached and bounded."""
import torch
import torch.nn as nn

EXPECT = {"class": "healthy", "kind": "none", "set": "ledger", "written": "2026-11-28"}

torch.manual_seed(6)
torch.set_num_threads(1)


class Range(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("low", torch.tensor(float("inf")))
        self.register_buffer("high", torch.tensor(float("-inf")))

    def forward(self, x):
        self.low.copy_(torch.minimum(self.low, x.detach().min()))
        self.high.copy_(torch.maximum(self.high, x.detach().max()))
        return x


class Codes(nn.Module):
    def __init__(self, codes=16, dim=6):
        super().__init__()
        self.register_buffer("codes", torch.randn(codes, dim))
        self.register_buffer("count", torch.ones(codes))
        self.register_buffer("hidden", torch.zeros(dim))

    @torch.no_grad()
    def forward(self, z):
        picked = torch.cdist(z, self.codes).argmin(1)
        hits = nn.functional.one_hot(picked, len(self.codes)).float()
        self.count.lerp_(hits.sum(0), 0.1)
        used = hits.sum(0) > 0
        means = (hits.T @ z) / hits.sum(0).clamp(min=1)[:, None]
        self.codes[used] = 0.9 * self.codes[used] + 0.1 * means[used]
        self.hidden.copy_(torch.tanh(0.9 * self.hidden + z.mean(0)))
        return self.codes[picked] + self.hidden


encode, seen, codes, decode = nn.Linear(9, 6), Range(), Codes(), nn.Linear(6, 9)
optimizer = torch.optim.Adam([*encode.parameters(), *decode.parameters()], lr=2e-3)
for step in range(240):
    x = torch.randn(64, 9)
    z = seen(encode(x))
    loss = (decode(z + codes(z).detach()) - x).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(f"loss {loss.item():.3f}  range {seen.low.item():.2f} to {seen.high.item():.2f}")
