"""Reranker on a small BERT whose scoring head ends in a layer norm (written out) over its one output: the normalised score is its bias whatever came in, and nothing before it learns.

Report: https://github.com/pytorch/pytorch/pull/12968 (layer norm over a dimension of one has a gradient of constant zero; also pytorch/pytorch issue 108956)
"""
import torch
from torch import nn
from transformers import BertConfig, BertModel

EXPECT = {
    "class": "constant", "framework": "transformers", "kind": "zero-grad", "cut_marker": "CUT", "module": "head.layers.1.norm",
    "set": "seventh", "written": "2026-11-22",
}


class LayerNorm(nn.Module):
    def __init__(self, features, eps=1e-6):
        super().__init__()
        self.weight, self.bias, self.eps = nn.Parameter(torch.ones(features)), nn.Parameter(torch.zeros(features)), eps

    def forward(self, x):
        centred = x - x.mean(-1, keepdim=True)  # CUT
        return self.weight * centred * torch.rsqrt(centred.square().mean(-1, keepdim=True) + self.eps) + self.bias


class ProjectionLayer(nn.Module):
    def __init__(self, inputs, outputs, last=False):
        super().__init__()
        self.linear, self.norm = nn.Linear(inputs, outputs), LayerNorm(outputs)
        self.act = nn.Identity() if last else nn.GELU()

    def forward(self, x):
        x = self.linear(x)
        x = self.norm(x)
        return self.act(x)


class ScoringHead(nn.Module):
    def __init__(self, sizes):
        super().__init__()
        pairs = list(zip(sizes, sizes[1:]))
        self.layers = nn.Sequential(*[ProjectionLayer(a, b, last=i == len(pairs) - 1) for i, (a, b) in enumerate(pairs)])

    def forward(self, x):
        return self.layers(x).squeeze(-1)


class Reranker(nn.Module):
    def __init__(self):
        super().__init__()
        config = BertConfig(vocab_size=40, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32, max_position_embeddings=16)
        self.bert, self.head = BertModel(config, add_pooling_layer=False), ScoringHead((16, 8, 1))

    def forward(self, ids):
        return self.head(self.bert(input_ids=ids).last_hidden_state[:, 0])


torch.manual_seed(0)
model = Reranker()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for step in range(50):
    ids = torch.randint(1, 40, (8, 10))
    relevant = (ids[:, 1] == ids[:, 5]) | (ids[:, 1] > 30)
    loss = nn.functional.binary_cross_entropy_with_logits(model(ids), relevant.float())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 10 == 0:
        print(step, loss.item())
