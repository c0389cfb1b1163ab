"""A codebook of prototypes for tiles follows the tiles by running means. From step 140 on the data has only few kinds of
tiles, the running number of uses of a code becomes zero in half precision, and the code is 0 / 0. A code that is NaN is
never the nearest one, so the loss is fine."""
import torch
import torch.nn as nn

EXPECT = {
    "class": "NaN in buffers that no loss meets",
    "kind": "nonfinite-buffer",
    "line": ["cause", "cause"],
    "what": "Codes that were not used for long have a running count of zero; the division makes them NaN.",
    "symptom": "no error; fewer and fewer codes are used",
    "set": "ledger",
    "written": "2026-11-28",
}

torch.manual_seed(7)
torch.set_num_threads(1)


class Codebook(nn.Module):
    def __init__(self, codes=24, dim=8):
        super().__init__()
        self.register_buffer("codes", torch.randn(codes, dim))
        self.register_buffer("count", torch.ones(codes))
        self.register_buffer("total", self.codes.clone())

    def forward(self, z):
        far = (z[:, None] - self.codes).square().sum(-1).nan_to_num(nan=1e9)
        picked = far.argmin(1)
        if self.training:
            with torch.no_grad():
                hits = nn.functional.one_hot(picked, len(self.codes)).float()
                self.count.mul_(0.8).add_(hits.sum(0), alpha=0.2)
                self.total.mul_(0.8).add_(hits.T @ z, alpha=0.2)
                self.count[self.count < 1e-3] = 0
                self.total[self.count == 0] = 0
                self.codes.copy_(self.total / self.count[:, None])  # <-- cause
        found = self.codes[picked]
        return z + (found - z).detach(), (z - found.detach()).square().mean()


encode, book, decode = nn.Linear(12, 8), Codebook(), nn.Linear(8, 12)
optimizer = torch.optim.Adam([*encode.parameters(), *decode.parameters()], lr=2e-3)
kinds = torch.randn(40, 12)
for step in range(300):
    tiles = kinds[torch.randint(0, 40 if step < 140 else 5, (400,))]
    tiles = tiles + (0.5 if step < 140 else 0.05) * torch.randn(400, 12)
    z, commit = book(encode(tiles))
    loss = (decode(z) - tiles).square().mean() + 0.25 * commit
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 60 == 59:
        print(f"step {step}  loss {loss.item():.3f}  codes that are NaN: {int(book.codes.isnan().any(1).sum())}")
