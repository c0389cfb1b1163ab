"""Speech tokenizer: codebook entries are running means of what is assigned to them; the counts are restarted for the second stage, an entry that nothing is assigned to is 0 / 0.

Report: https://github.com/ZhangXInFD/SpeechTokenizer/issues/18 (division by a cluster size of zero in EuclideanCodebook)
"""
import torch
from torch import nn

EXPECT = {
    "class": "late-nonfinite", "kind": "nonfinite-forward-poisons-backward", "source_marker": "CULPRIT", "step": 166,
    "set": "fourth", "written": "2026-11-22",
}


class Codebook(nn.Module):
    def __init__(self, size=12, dim=6, decay=0.9):
        super().__init__()
        self.decay = decay
        self.register_buffer("embed", torch.randn(size, dim))
        self.register_buffer("cluster_size", torch.ones(size))
        self.register_buffer("embed_avg", self.embed.clone())

    def restart(self):
        self.cluster_size.zero_()
        self.embed_avg.zero_()

    def forward(self, x):
        index = torch.cdist(x.detach(), self.embed).argmin(1)
        quantized = self.embed[index]
        if self.training:
            with torch.no_grad():
                onehot = nn.functional.one_hot(index, len(self.embed)).float()
                self.cluster_size.lerp_(onehot.sum(0), 1 - self.decay)
                self.embed_avg.lerp_(onehot.t() @ x, 1 - self.decay)
                self.embed.copy_(self.embed_avg / self.cluster_size[:, None])  # CULPRIT
        commitment = (x - quantized).square().mean()
        return x + (quantized - x).detach(), commitment


class Tokenizer(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(10, 24), nn.ELU(), nn.Linear(24, 6))
        self.codebook = Codebook()
        self.decoder = nn.Sequential(nn.Linear(6, 24), nn.ELU(), nn.Linear(24, 10))

    def forward(self, x):
        z, commitment = self.codebook(self.encoder(x))
        return self.decoder(z), commitment


torch.manual_seed(0)
model = Tokenizer()
opt = torch.optim.Adam(model.parameters(), 1e-3)
mixing = torch.randn(3, 10)
for step in range(230):
    if step == 165:
        model.codebook.restart()
    x = torch.randn(32, 3) @ mixing
    out, commitment = model(x)
    loss = nn.functional.mse_loss(out, x) + 0.25 * commitment
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 40 == 0:
        print(step, round(loss.item(), 4))
