"""Vocoder under accelerate with weight-normalised convolutions: every now and then an excerpt is rendered to listen to, for which the norm is folded away and put back afterwards; the parameters that come back are new ones.

Report: https://github.com/seungwonpark/melgan/issues/37 (why inference removes the weight norm of the generator; removing it while training goes on changes the parameters)
"""
import torch
from accelerate import Accelerator
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import parametrizations, parametrize

EXPECT = {
    "class": "late-no-optimizer", "framework": "accelerate", "kind": "parameter-not-in-optimizer", "optimizer_marker": "OPTIMIZER", "step": 60,
    "set": "ninth", "written": "2026-11-23",
}
HOP = 4


class Generator(nn.Module):
    def __init__(self, mels=8, width=16):
        super().__init__()
        self.inlet = nn.Conv1d(mels, width, 5, padding=2)
        self.up = nn.ConvTranspose1d(width, width, 2 * HOP, HOP, HOP // 2)
        self.refine = nn.Conv1d(width, width, 5, padding=2)
        self.outlet = nn.Conv1d(width, 1, 5, padding=2)
        self.apply_weight_norm()

    def convolutions(self):
        return [m for m in self.modules() if isinstance(m, (nn.Conv1d, nn.ConvTranspose1d))]

    def apply_weight_norm(self):
        for conv in self.convolutions():
            parametrizations.weight_norm(conv)

    def remove_weight_norm(self):
        for conv in self.convolutions():
            parametrize.remove_parametrizations(conv, "weight")

    def forward(self, mel):
        x = F.leaky_relu(self.up(F.leaky_relu(self.inlet(mel), 0.2)), 0.2)
        x = x + F.leaky_relu(self.refine(x), 0.2)
        return self.outlet(x).tanh().squeeze(1)

    @torch.no_grad()
    def render(self, mel):
        self.remove_weight_norm()
        audio = self(mel)
        self.apply_weight_norm()
        return audio


def excerpts(n, basis, frames=16):
    t = torch.arange(frames * HOP) / HOP
    pitch = 0.5 + 1.5 * torch.rand(n, 1)
    audio = 0.7 * torch.sin(pitch * t + 6.28 * torch.rand(n, 1))
    mel = torch.einsum("nfh,mh->nmf", audio.view(n, frames, HOP), basis)
    return mel, audio


torch.manual_seed(0)
accelerator = Accelerator(cpu=True)
basis = torch.randn(8, HOP)
generator = Generator()
optimizer = torch.optim.AdamW(generator.parameters(), lr=3e-3)  # OPTIMIZER
generator, optimizer = accelerator.prepare(generator, optimizer)
for step in range(140):
    if step and step % 60 == 0:
        heard = accelerator.unwrap_model(generator).render(excerpts(1, basis)[0])
        print(step, "rendered", heard.abs().max().item())
    mel, audio = excerpts(16, basis)
    loss = F.l1_loss(generator(mel), audio)
    optimizer.zero_grad()
    accelerator.backward(loss)
    accelerator.clip_grad_norm_(generator.parameters(), 1.0)
    before = generator.refine.parametrizations.weight.original1.detach().clone()
    optimizer.step()
    if step % 15 == 0:
        print(step, loss.item(), "refine moved", (generator.refine.parametrizations.weight.original1 - before).abs().max().item())
