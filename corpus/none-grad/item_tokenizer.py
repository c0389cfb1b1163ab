"""A residual-quantised autoencoder that turns item vectors of a shop into code tuples; the codebooks stay at their random start.

Report: https://github.com/EdoardoBotta/RQ-VAE-Recommender/issues/24 (codebook embeddings have None gradients and do not
change), same as https://github.com/showlab/Olaf-World/issues/8 (codebook loss computed on the straight-through output).
Effect: codebook weights have grad None and do not move; the term acts on the encoder instead and drives it away from the
codes, the quantisation loss grows without bound and nearly all items end in one code tuple (test error 2.26, mended 0.15).
"""
import torch
import torch.nn as nn
import torch.nn.functional as F

EXPECT = {
    "framework": "plain", "kind": "none-grad", "line": ("loss", "CAUSE"),
    "what": "the codebook loss is computed on the straight-through output, in which the looked-up code is detached, so no gradient reaches the codebooks; compute it on the code vectors themselves before the straight-through step",
    "set": "twentyfirst", "written": "2026-11-27",
}


class Level(nn.Module):
    def __init__(self, n_codes, dim):
        super().__init__()
        self.codebook = nn.Embedding(n_codes, dim)
        nn.init.normal_(self.codebook.weight, std=0.3)

    def forward(self, res):
        dist = torch.cdist(res.detach(), self.codebook.weight.detach())
        ids = dist.argmin(dim=-1)
        code = self.codebook(ids)
        code = res + (code - res).detach()  # OTHER
        book_loss = F.mse_loss(code, res.detach())  # CAUSE
        commit = F.mse_loss(res, code.detach())
        return code, ids, book_loss + 0.25 * commit


class ItemTokenizer(nn.Module):
    def __init__(self, n_in=32, dim=8, levels=3, n_codes=16):
        super().__init__()
        self.enc = nn.Sequential(nn.Linear(n_in, 48), nn.ReLU(), nn.Linear(48, dim))
        self.dec = nn.Sequential(nn.Linear(dim, 48), nn.ReLU(), nn.Linear(48, n_in))
        self.levels = nn.ModuleList(Level(n_codes, dim) for _ in range(levels))

    def forward(self, x):
        res = self.enc(x)
        total, loss, tokens = 0.0, 0.0, []
        for level in self.levels:
            code, ids, l = level(res)
            res = res - code.detach()
            total = total + code
            loss = loss + l
            tokens.append(ids)
        return self.dec(total), torch.stack(tokens, 1), loss


def make_items(n, gen):
    centres = torch.randn(24, 32, generator=torch.Generator().manual_seed(9)) * 1.5
    kind = torch.randint(0, 24, (n,), generator=gen)
    return centres[kind] + 0.3 * torch.randn(n, 32, generator=gen)


def main():
    torch.manual_seed(0)
    gen = torch.Generator().manual_seed(1)
    model = ItemTokenizer()
    opt = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.0)
    first = model.levels[0].codebook.weight.detach().clone()
    test = make_items(1000, gen)
    for step in range(400):
        x = make_items(64, gen)
        out, tokens, q_loss = model(x)
        rec = F.mse_loss(out, x)
        loss = rec + q_loss
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 80 == 0:
            print(f"step {step} rec {rec.item():.3f} quant {q_loss.item():.3f} tuples {len(tokens.unique(dim=0))}")
    with torch.no_grad():
        out, tokens, _ = model(test)
    print("test rec", round(F.mse_loss(out, test).item(), 4), "tuples", len(tokens.unique(dim=0)))
    print("codebook moved", (model.levels[0].codebook.weight - first).abs().max().item())


if __name__ == "__main__":
    main()
