"""Audio autoencoder with a magnitude loss: the epsilon under the root was only put in for trainable kernels, and one clip of the set is digital silence that the untouched skip path passes on.

Report: https://github.com/KinWaiCheuk/nnAudio/issues/138 (NaN gradients where spec == 0, torch.sqrt(spec) without 1e-8 when trainable is False)
"""
import math

import torch
from torch import nn

EXPECT = {
    "class": "edge-of-domain", "kind": "nonfinite-backward", "source_marker": "CULPRIT", "module": "spectrum", "step": 112,
    "set": "sixth", "written": "2026-11-22",
}


class Magnitude(nn.Module):
    def __init__(self, size=32, hop=16, trainable=False):
        super().__init__()
        self.hop, self.trainable = hop, trainable
        angle = 2 * math.pi * torch.arange(size // 2 + 1)[:, None] * torch.arange(size) / size
        window = torch.hann_window(size)
        real, imag = (angle.cos() * window)[:, None], (-angle.sin() * window)[:, None]
        if trainable:
            self.real, self.imag = nn.Parameter(real), nn.Parameter(imag)
        else:
            self.register_buffer("real", real)
            self.register_buffer("imag", imag)

    def forward(self, audio):
        real = nn.functional.conv1d(audio[:, None], self.real, stride=self.hop)
        imag = nn.functional.conv1d(audio[:, None], self.imag, stride=self.hop)
        spec = real.pow(2) + imag.pow(2)
        if self.trainable:
            return torch.sqrt(spec + 1e-8)
        return torch.sqrt(spec)  # CULPRIT


class Enhancer(nn.Module):
    def __init__(self, width=12):
        super().__init__()
        self.encode = nn.Conv1d(1, width, 9, padding=4, bias=False)
        self.mask = nn.Conv1d(width, width, 1)
        self.decode = nn.Conv1d(width, 1, 9, padding=4, bias=False)
        self.spectrum = Magnitude()

    def forward(self, noisy, clean):
        h = self.encode(noisy[:, None])
        audio = self.decode(h * torch.sigmoid(self.mask(h)))[:, 0]
        wave = nn.functional.l1_loss(audio, clean)
        return wave + nn.functional.l1_loss(self.spectrum(audio), self.spectrum(clean))


def clips(step):
    time = torch.arange(256) / 256
    clean = torch.sin(2 * math.pi * time * torch.randint(3, 30, (6, 1)))
    noisy = clean + 0.1 * torch.randn_like(clean)
    if step == 112:
        clean[4], noisy[4] = 0, 0
    return noisy, clean


torch.manual_seed(0)
model = Enhancer()
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
for step in range(150):
    loss = model(*clips(step))
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 5.0)
    optimizer.step()
    if step % 20 == 0 or not loss.isfinite():
        print(step, loss.item())
