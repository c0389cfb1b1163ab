"""A gradient monitor on the attention blocks of a llama-style decoder stays empty.

Source: https://github.com/meta-llama/llama/issues/1055 (same effect: https://github.com/numenta/nupic.torch/pull/51)
"""
from collections import defaultdict

import torch
from torch import nn
import torch.nn.functional as F

EXPECT = {
    "class": "h", "kind": "hook-never-fires", "hooked_modules": ["layers.0.attention", "layers.1.attention"],
    "hook_marker": "HOOK", "bypass_line_contains": "self.attention.forward(", "plain": {"outcome": "silent"},
    "set": "twelfth", "written": "2026-11-25",
}


class RMSNorm(nn.Module):
    def __init__(self, dim, eps=1e-6):
        super().__init__()
        self.eps, self.weight = eps, nn.Parameter(torch.ones(dim))

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * self.weight


class Attention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.wqkv, self.wo = nn.Linear(dim, 3 * dim, bias=False), nn.Linear(dim, dim, bias=False)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.wqkv(x).view(b, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.wo(out.transpose(1, 2).reshape(b, t, d))


class FeedForward(nn.Module):
    def __init__(self, dim, hidden):
        super().__init__()
        self.w1, self.w3 = nn.Linear(dim, hidden, bias=False), nn.Linear(dim, hidden, bias=False)
        self.w2 = nn.Linear(hidden, dim, bias=False)

    def forward(self, x):
        return self.w2(F.silu(self.w1(x)) * self.w3(x))


class TransformerBlock(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.attention, self.feed_forward = Attention(dim, heads), FeedForward(dim, 2 * dim)
        self.attention_norm, self.ffn_norm = RMSNorm(dim), RMSNorm(dim)

    def forward(self, x):
        h = x + self.attention.forward(self.attention_norm(x))
        return h + self.feed_forward.forward(self.ffn_norm(h))


class Transformer(nn.Module):
    def __init__(self, vocab=32, dim=32, n_layers=2, heads=4):
        super().__init__()
        self.tok_embeddings = nn.Embedding(vocab, dim)
        self.layers = nn.ModuleList(TransformerBlock(dim, heads) for _ in range(n_layers))
        self.norm, self.output = RMSNorm(dim), nn.Linear(dim, vocab, bias=False)

    def forward(self, tokens):
        h = self.tok_embeddings(tokens)
        for layer in self.layers:
            h = layer(h)
        return self.output(self.norm(h))


class GradMonitor:
    def __init__(self, model):
        self.norms = defaultdict(list)
        for name, module in model.named_modules():
            if isinstance(module, Attention):
                module.register_full_backward_hook(self.hook(name))  # HOOK

    def hook(self, name):
        def fn(module, grad_input, grad_output):
            self.norms[name].append(grad_output[0].norm().item())
        return fn

    def report(self):
        return {k: sum(v) / len(v) for k, v in self.norms.items()}


def main():
    torch.manual_seed(0)
    model = Transformer()
    monitor = GradMonitor(model)
    opt = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for step in range(80):
        start = torch.randint(0, 32, (16, 1))
        seq = (start + 3 * torch.arange(17)) % 32
        logits = model(seq[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1), seq[:, 1:].flatten())
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 20 == 0:
            print(step, round(loss.item(), 3), monitor.report())


if __name__ == "__main__":
    main()
