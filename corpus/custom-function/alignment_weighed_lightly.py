"""Text to speech with a hand-written loss for the alignment of phones and frames (forward sum): it keeps the gradient it computed on the way and returns it as it is, whatever stands behind it, so that mean and weight of the loss are lost.

Report: https://github.com/SeanNaren/deepspeech.pytorch/issues/250 (why does the gradient not scale linearly with CTCLoss: "we don't take grad_outputs into consideration"), https://github.com/SeanNaren/warp-ctc/pull/170
"""
import torch
from torch import nn
from torch.nn import functional as F

EXPECT = {
    "class": "silent-wrong", "kind": "wrong-backward", "apply_marker": "APPLY",
    "set": "eleventh", "written": "2026-11-23",
}
PHONES, MEL, FRAMES = 6, 10, 20


class ForwardSum(torch.autograd.Function):
    """Minus the log probability of all monotonic paths, one number per utterance."""

    @staticmethod
    def forward(ctx, scores):
        with torch.enable_grad():
            x = scores.detach().requires_grad_()
            log_p = x.log_softmax(-1)
            alpha = torch.cat([log_p[:, 0, :1], torch.full_like(log_p[:, 0, 1:], -1e4)], -1)
            for t in range(1, x.shape[1]):
                moved = F.pad(alpha[:, :-1], (1, 0), value=-1e4)
                alpha = torch.logaddexp(alpha, moved) + log_p[:, t]
            cost = -alpha[:, -1]
            (gradient,) = torch.autograd.grad(cost.sum(), x)
        ctx.save_for_backward(gradient)
        return cost.detach()

    @staticmethod
    def backward(ctx, grad_output):
        (gradient,) = ctx.saved_tensors
        return gradient


class Speaker(nn.Module):
    def __init__(self, inventory=12, width=32):
        super().__init__()
        self.phone = nn.Embedding(inventory, width)
        self.frame = nn.Sequential(nn.Linear(MEL, width), nn.Tanh(), nn.Linear(width, width))
        self.voice = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, MEL))

    def forward(self, phones, mel):
        text = self.phone(phones)
        scores = self.frame(mel) @ text.transpose(1, 2) / text.shape[-1] ** 0.5
        return self.voice(scores.softmax(-1) @ text), scores


def utterances(timbre, count=16):
    phones = torch.randint(0, len(timbre), (count, PHONES))
    lasts = torch.randint(0, PHONES, (count, FRAMES)).sort(1).values
    mel = timbre[torch.gather(phones, 1, lasts)]
    return phones, mel + 0.1 * torch.randn_like(mel)


torch.manual_seed(0)
model, timbre = Speaker(), torch.randn(12, MEL)
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
for step in range(60):
    phones, mel = utterances(timbre)
    spoken, scores = model(phones, mel)
    alignment = ForwardSum.apply(scores)  # APPLY
    loss = F.l1_loss(spoken, mel) + 0.05 * alignment.mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 10 == 0:
        print(f"step {step} loss {loss.item():.4f} alignment {alignment.mean().item():.3f}")
