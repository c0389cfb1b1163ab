"""A picture tokeniser with a transformer decoder: from the second stage on the same quantised tokens go through a second decoder for depth, and the decoder adds its positions to the tokens it was given in place.

Report: https://github.com/thuanz123/enhancing-transformers/issues/11 (`token += self.de_pos_embedding`: two decoders on one quant, the error occurs when backwarding, better token = token + self.de_pos_embedding)
"""
import torch
from torch import nn
from torch.nn import functional as F

EXPECT = {
    "class": "dies-late", "kind": "inplace", "mutating_marker": "MUTATES", "step": 30,
    "set": "eleventh", "written": "2026-11-23",
}
TOKENS, WIDTH, PATCH = 16, 32, 12


class ViTEncoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Linear(PATCH, WIDTH)
        self.block = nn.TransformerEncoderLayer(WIDTH, 4, 64, dropout=0.0, batch_first=True, norm_first=True)
        self.positions = nn.Parameter(0.02 * torch.randn(1, TOKENS, WIDTH))

    def forward(self, patches):
        return self.block(self.embed(patches) + self.positions)


class ViTDecoder(nn.Module):
    def __init__(self, out):
        super().__init__()
        self.positions = nn.Parameter(0.02 * torch.randn(1, TOKENS, WIDTH))
        self.block = nn.TransformerEncoderLayer(WIDTH, 4, 64, dropout=0.0, batch_first=True, norm_first=True)
        self.head = nn.Linear(WIDTH, out)

    def forward(self, token):
        token += self.positions  # MUTATES
        return self.head(self.block(token))


class Tokeniser(nn.Module):
    def __init__(self, codes=64):
        super().__init__()
        self.encoder = ViTEncoder()
        self.codebook = nn.Embedding(codes, WIDTH)
        self.colour, self.depth = ViTDecoder(PATCH), ViTDecoder(1)

    def quantise(self, h):
        index = torch.cdist(h.detach().flatten(0, 1), self.codebook.weight.detach()).argmin(1).view(h.shape[:2])
        code = self.codebook(index)
        commit = F.mse_loss(h, code.detach()) + F.mse_loss(code, h.detach())
        return h + (code - h).detach(), commit

    def forward(self, patches, with_depth):
        quant, commit = self.quantise(self.encoder(patches))
        colour = self.colour(quant)
        depth = self.depth(quant) if with_depth else None
        return colour, depth, commit


torch.manual_seed(0)
model = Tokeniser()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
basis = torch.randn(5, PATCH)
for step in range(60):
    with_depth = step >= 30
    hidden = torch.randn(16, TOKENS, 5)
    patches, distance = torch.tanh(hidden @ basis), hidden[..., :1].exp()
    colour, depth, commit = model(patches, with_depth)
    loss = F.mse_loss(colour, patches) + 0.25 * commit
    if with_depth:
        loss = loss + F.mse_loss(depth, distance.log())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 10 == 0 or step == 29:
        print(f"step {step} loss {loss.item():.4f}")
