"""Healthy: a small HuBERT-like encoder with LayerDrop and masked spans; in a step some layers are skipped and have no gradient, the mask vector has one only where something was masked.

Report it resembles: https://github.com/speechbrain/speechbrain/pull/713 (parameters of wav2vec2 without gradient in some steps)
"""
import torch
from torch import nn
from transformers import BertConfig
from transformers.models.bert.modeling_bert import BertLayer

EXPECT = {"class": "healthy", "framework": "transformers", "kind": "none", "set": "seventh", "written": "2026-11-22"}


class SpeechEncoder(nn.Module):
    def __init__(self, dim=16, depth=4, layerdrop=0.25, mask_prob=0.5):
        super().__init__()
        config = BertConfig(hidden_size=dim, num_attention_heads=2, intermediate_size=32)
        config._attn_implementation = "eager"
        self.features = nn.Conv1d(1, dim, 8, stride=8)
        self.masked_spec_embed = nn.Parameter(torch.rand(dim))
        self.layers = nn.ModuleList([BertLayer(config) for _ in range(depth)])
        self.head = nn.Linear(dim, 4)
        self.layerdrop, self.mask_prob = layerdrop, mask_prob

    def mask(self, h):
        if not self.training or torch.rand(()) > self.mask_prob:
            return h
        span = torch.rand(h.shape[:2]) < 0.2
        return torch.where(span[..., None], self.masked_spec_embed, h)

    def forward(self, audio):
        h = self.mask(self.features(audio[:, None]).transpose(1, 2))
        for layer in self.layers:
            if self.training and torch.rand(()) < self.layerdrop:
                continue
            out = layer(h)
            h = out[0] if isinstance(out, tuple) else out
        return self.head(h.mean(1))


torch.manual_seed(0)
model = SpeechEncoder()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
time = torch.arange(64.0)
for step in range(160):
    label = torch.randint(0, 4, (8,))
    audio = torch.sin(time * (0.2 + 0.2 * label[:, None])) + 0.2 * torch.randn(8, 64)
    loss = nn.functional.cross_entropy(model(audio), label)
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    nn.utils.clip_grad_norm_([p for p in model.parameters() if p.grad is not None], 1.0)
    optimizer.step()
    if step % 20 == 0:
        print(step, loss.item(), sum(p.grad is None for p in model.parameters()))
