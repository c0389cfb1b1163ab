"""Megatron-style linear layer with a hand-written backward, followed by a convolution over time.

Source: https://github.com/NVIDIA/Megatron-LM/issues/251 (same: https://github.com/NVIDIA/apex/pull/1573)
"""
import torch
from torch import nn
import torch.nn.functional as F

EXPECT = {
    "class": "i", "kind": "backward-error", "source_marker": "CULPRIT", "function": "LinearWithGradAccumulation",
    "module": "up",
    "plain": {"outcome": "raises", "exception": "RuntimeError", "match": "view size is not compatible"},
    "set": "twelfth", "written": "2026-11-25",
}


class LinearWithGradAccumulation(torch.autograd.Function):
    @staticmethod
    def forward(ctx, inp, weight, bias):
        ctx.save_for_backward(inp, weight)
        return torch.matmul(inp, weight.t()) + bias

    @staticmethod
    def backward(ctx, grad_output):
        inp, weight = ctx.saved_tensors
        grad_input = grad_output.matmul(weight)
        grad_output = grad_output.view(grad_output.shape[0] * grad_output.shape[1], grad_output.shape[2])
        inp = inp.reshape(-1, inp.shape[-1])
        return grad_input, grad_output.t().matmul(inp), grad_output.sum(0)


class ColumnLinear(nn.Module):
    def __init__(self, d_in, d_out):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(d_out, d_in))
        self.bias = nn.Parameter(torch.zeros(d_out))
        nn.init.xavier_uniform_(self.weight)

    def forward(self, x):
        out = LinearWithGradAccumulation.apply(x, self.weight, self.bias)  # CULPRIT
        return out


class SpeechTagger(nn.Module):
    def __init__(self, n_mels=20, dim=32, n_tags=6):
        super().__init__()
        self.up = ColumnLinear(n_mels, dim)
        self.conv = nn.Conv1d(dim, dim, 3, padding=1)
        self.gru = nn.GRU(dim, dim, batch_first=True)
        self.head = nn.Linear(dim, n_tags)

    def forward(self, mels):
        h = F.gelu(self.up(mels)).transpose(1, 2)
        h = F.gelu(self.conv(h)).transpose(1, 2)
        h, _ = self.gru(h)
        return self.head(h)


def synthetic_speech(n, frames=30, n_mels=20, n_tags=6):
    tags = torch.randint(0, n_tags, (n, frames // 5)).repeat_interleave(5, 1)
    basis = torch.randn(n_tags, n_mels, generator=torch.Generator().manual_seed(9))
    return basis[tags] + 0.5 * torch.randn(n, frames, n_mels), tags


def main():
    torch.manual_seed(0)
    model = SpeechTagger()
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    for step in range(50):
        mels, tags = synthetic_speech(8)
        loss = F.cross_entropy(model(mels).flatten(0, 1), tags.flatten())
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 10 == 0:
            print(step, loss.item())


if __name__ == "__main__":
    main()
