"""Speech enhancement with a magnitude loss: the network has no biases, a silent clip comes out as exact silence, and the root in the magnitude has no slope there.

Report: https://github.com/KinWaiCheuk/nnAudio/issues/138 (the gradient of the magnitude is NaN wherever the spectrum is zero)
"""
import torch
from torch import nn

EXPECT = {
    "class": "late-nonfinite", "kind": "nonfinite-backward", "source_marker": "CULPRIT", "step": 112,
    "set": "seventh", "written": "2026-11-22",
}


class STFT(nn.Module):
    def __init__(self, n_fft=16, hop=8):
        super().__init__()
        window = torch.hann_window(n_fft)
        angle = 2 * torch.pi * torch.arange(n_fft // 2 + 1)[:, None] * torch.arange(n_fft) / n_fft
        self.register_buffer("cosine", (angle.cos() * window)[:, None])
        self.register_buffer("sine", (angle.sin() * window)[:, None])
        self.hop = hop

    def forward(self, audio):
        real = nn.functional.conv1d(audio[:, None], self.cosine, stride=self.hop)
        imaginary = nn.functional.conv1d(audio[:, None], self.sine, stride=self.hop)
        power = real.pow(2) + imaginary.pow(2)
        return torch.sqrt(power)  # CULPRIT


class Enhancer(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.encode = nn.Conv1d(1, width, 9, padding=4, bias=False)
        self.mask = nn.Sequential(nn.Conv1d(width, width, 9, padding=4), nn.Sigmoid())
        self.decode = nn.Conv1d(width, 1, 9, padding=4, bias=False)

    def forward(self, audio):
        h = self.encode(audio[:, None])
        return self.decode(h * self.mask(h)).squeeze(1)


def clips(n, step):
    time = torch.arange(64.0)
    clean = torch.sin(time * (0.2 + torch.rand(n, 1))) * (0.5 + torch.rand(n, 1))
    noisy = clean + 0.3 * torch.randn(n, 64)
    if step == 112:  # digital silence before the speaker starts
        clean[2], noisy[2] = 0, 0
    return noisy, clean


torch.manual_seed(0)
net, stft = Enhancer(), STFT()
optimizer = torch.optim.Adam(net.parameters(), lr=2e-3)
for step in range(160):
    noisy, clean = clips(8, step)
    loss = nn.functional.l1_loss(stft(net(noisy)), stft(clean))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 20 == 0:
        print(step, loss.item())
