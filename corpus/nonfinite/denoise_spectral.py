"""Speech denoiser trained with a multi resolution spectral loss.

Story: a small masking network cleans noisy clips; the loss compares log magnitudes of STFTs.
Training looks fine for a good while, then every number becomes nan.  One clip of the corpus
was recorded with the microphone muted for a part of the time (digital silence).
Based on public reports: KinWaiCheuk/nnAudio#138 ("stft gradient can produce nan") and
csteinmetz1/auraloss#63.
"""
import logging
import math
from dataclasses import dataclass

import torch
from torch import nn
import torch.nn.functional as F

EXPECT = {
    "class": "x", "kind": "nonfinite-backward", "source_marker": "SRC", "plain": {"outcome": "silent"},
    "set": "fourteenth", "written": "2026-11-26",
}

log = logging.getLogger("denoise")


@dataclass
class Config:
    clips: int = 1200
    length: int = 2048
    batch: int = 4
    lr: float = 2e-3
    resolutions: tuple = ((256, 64), (512, 128))
    muted_clip: int = 731
    log_every: int = 50


def make_corpus(cfg):
    """Harmonic tones in white noise; what the recorder delivered, and the clean reference."""
    g = torch.Generator().manual_seed(3)
    t = torch.arange(cfg.length) / 8000.0
    f0 = 90 + 200 * torch.rand(cfg.clips, 1, generator=g)
    clean = sum(torch.sin(2 * math.pi * k * f0 * t) / k for k in (1, 2, 3))
    noisy = clean + 0.5 * torch.randn(cfg.clips, cfg.length, generator=g)
    noisy[cfg.muted_clip, 600:1500] = 0.0
    clean[cfg.muted_clip, 600:1500] = 0.0
    return noisy, clean + 0.002 * torch.randn(cfg.clips, cfg.length, generator=g)


class MaskNet(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv1d(1, width, 15, padding=7), nn.ELU(),
            nn.Conv1d(width, width, 15, padding=7), nn.ELU(),
            nn.Conv1d(width, 1, 15, padding=7),
        )

    def forward(self, wave):
        gain = torch.sigmoid(self.body(wave.unsqueeze(1))).squeeze(1)
        return wave * gain


class SpectralLoss(nn.Module):
    def __init__(self, resolutions):
        super().__init__()
        self.resolutions = resolutions
        for n_fft, _ in resolutions:
            self.register_buffer(f"window_{n_fft}", torch.hann_window(n_fft))

    def magnitude(self, wave, n_fft, hop):
        window = getattr(self, f"window_{n_fft}")
        spec = torch.stft(wave, n_fft, hop, window=window, return_complex=True)
        re, im = torch.view_as_real(spec).unbind(-1)
        return torch.sqrt(re.pow(2) + im.pow(2))  # SRC

    def forward(self, estimate, reference):
        total = 0.0
        for n_fft, hop in self.resolutions:
            est = self.magnitude(estimate, n_fft, hop)
            ref = self.magnitude(reference, n_fft, hop)
            total = total + F.l1_loss(torch.log(est + 1e-3), torch.log(ref + 1e-3))
        return total / len(self.resolutions)


def main():
    logging.basicConfig(level=logging.INFO, format="%(name)s %(message)s")
    torch.manual_seed(0)
    cfg = Config()
    noisy, clean = make_corpus(cfg)
    model = MaskNet()
    criterion = SpectralLoss(cfg.resolutions)
    optimizer = torch.optim.Adam(model.parameters(), lr=cfg.lr)
    for step, start in enumerate(range(0, cfg.clips, cfg.batch)):
        x, y = noisy[start:start + cfg.batch], clean[start:start + cfg.batch]
        loss = criterion(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % cfg.log_every == 0:
            log.info("step %d spectral loss %.4f", step, loss.item())


if __name__ == "__main__":
    main()
