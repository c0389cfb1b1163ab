"""Speech model with a soft-DTW loss that joins after a warm-up: its backward recursion takes the weights of the soft minimum as all or nothing, where they are fractions.

Report: https://github.com/keonlee9420/Parallel-Tacotron2/pull/15 (the backward of soft-DTW leaves out the factors a, b and c)
"""
import torch
from torch import nn

EXPECT = {
    "class": "custom-function", "kind": "wrong-backward", "apply_marker": "APPLY", "step": 40,
    "set": "seventh", "written": "2026-11-22",
}


class SoftDTWFunction(torch.autograd.Function):
    @staticmethod
    def forward(ctx, D, gamma):
        batch, n, m = D.shape
        R = D.new_full((batch, n + 2, m + 2), float("inf"))
        R[:, 0, 0] = 0
        for i in range(1, n + 1):
            for j in range(1, m + 1):
                before = torch.stack([R[:, i - 1, j - 1], R[:, i - 1, j], R[:, i, j - 1]])
                R[:, i, j] = D[:, i - 1, j - 1] - gamma * torch.logsumexp(-before / gamma, 0)
        ctx.save_for_backward(D, R)
        ctx.gamma = gamma
        return R[:, n, m]

    @staticmethod
    def backward(ctx, grad_output):
        (D, R), gamma = ctx.saved_tensors, ctx.gamma
        batch, n, m = D.shape
        E = D.new_zeros(batch, n + 2, m + 2)
        E[:, n, m] = 1
        for i in range(n, 0, -1):
            for j in range(m, 0, -1):
                for di, dj in ((1, 0), (0, 1), (1, 1)):
                    if i + di <= n and j + dj <= m:
                        weight = ((R[:, i + di, j + dj] - R[:, i, j] - D[:, i + di - 1, j + dj - 1]) / gamma).exp()
                        E[:, i, j] += E[:, i + di, j + dj] * (weight > 0.5)
        return grad_output[:, None, None] * E[:, 1:-1, 1:-1], None


class SoftDTW(nn.Module):
    def __init__(self, gamma=1.0):
        super().__init__()
        self.gamma = gamma

    def forward(self, x, y):
        D = (x[:, :, None] - y[:, None]).square().sum(-1)
        return SoftDTWFunction.apply(D, self.gamma).mean()  # APPLY


class Decoder(nn.Module):
    def __init__(self, phones=10, mels=3):
        super().__init__()
        self.embed, self.rnn, self.mel = nn.Embedding(phones, 12), nn.GRU(12, 16, batch_first=True), nn.Linear(16, mels)

    def forward(self, phones):
        return self.mel(self.rnn(self.embed(phones))[0])


torch.manual_seed(0)
decoder, soft_dtw = Decoder(), SoftDTW()
table = torch.randn(10, 3)
optimizer = torch.optim.Adam(decoder.parameters(), lr=3e-3)
for step in range(60):
    phones = torch.randint(0, 10, (4, 6))
    mel = decoder(phones)
    loss = nn.functional.l1_loss(mel, table[phones])
    if step >= 40:  # real durations from here on
        target = table[torch.cat([phones[:, :2], phones[:, 1:]], 1)]
        loss = 0.2 * loss + 0.05 * soft_dtw(mel, target)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 10 == 0:
        print(step, loss.item())
