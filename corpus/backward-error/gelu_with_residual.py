"""Hand-unrolled RNN with gradient accumulation: in the last phase the fused activation also gets the state to add, and its backward unpacks one tensor where two were saved."""
import torch
from torch import nn

EXPECT = {
    "class": "late-function", "kind": "backward-error", "apply_marker": "CULPRIT", "step": 208, "counted": "optimizer updates",
    "set": "late", "written": "2026-11-22",
}


class GeluAdd(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, residual=None):
        out = nn.functional.gelu(x)
        if residual is None:
            ctx.save_for_backward(x)
            return out
        ctx.save_for_backward(x, residual)
        return out + residual

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        cdf = 0.5 * (1 + torch.erf(x / 2**0.5))
        density = torch.exp(-0.5 * x * x) / (2 * torch.pi) ** 0.5
        return grad * (cdf + x * density), grad if ctx.needs_input_grad[1] else None


class RNN(nn.Module):
    def __init__(self, hidden=12):
        super().__init__()
        self.inputs, self.recurrent = nn.Linear(3, hidden), nn.Linear(hidden, hidden)
        self.out, self.residual = nn.Linear(hidden, 1), False

    def forward(self, sequence):
        h = torch.zeros(sequence.shape[1], 12)
        for x in sequence:
            z = self.inputs(x) + self.recurrent(h)
            h = GeluAdd.apply(z, h if self.residual else None)  # CULPRIT
        return self.out(h)[:, 0]


torch.manual_seed(0)
model = RNN()
opt = torch.optim.AdamW(model.parameters(), 2e-3)
accumulate, length, update = 4, 4, 0
while update < 300:
    if update == 208:
        model.residual, length = True, 8  # longer sequences
    for _ in range(accumulate):
        sequence = torch.randn(length, 8, 3)
        loss = nn.functional.mse_loss(model(sequence), sequence[-3:].sum((0, 2)))
        (loss / accumulate).backward()
    nn.utils.clip_grad_norm_(model.parameters(), 5.0)
    opt.step()
    opt.zero_grad()
    update += 1
    if update % 30 == 0:
        print(update, round(loss.item(), 4))
