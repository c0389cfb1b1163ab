"""Tiny BERT with a classifier, whose encoder's gradient is to be logged from some step on: the full backward hook is put on the encoder as a whole, which returns a ModelOutput, no tensor or tuple.

Report: https://github.com/huggingface/transformers/issues/36508 (backward hooks on a model of transformers: the module's output should be a Tensor or a tuple, received BaseModelOutputWithPoolingAndCrossAttentions)
"""
import warnings

import torch
from torch import nn
from torch.nn import functional as F
from transformers import BertConfig, BertModel

EXPECT = {
    "class": "hook", "framework": "transformers", "kind": "hook-never-fires", "hook_marker": "HOOK", "module": "encoder", "step": 40,
    "set": "tenth", "written": "2026-11-23",
}
warnings.simplefilter("ignore")


class Classifier(nn.Module):
    def __init__(self, words=40, dim=24, classes=3):
        super().__init__()
        config = BertConfig(vocab_size=words, hidden_size=dim, num_hidden_layers=2, num_attention_heads=2, intermediate_size=48, max_position_embeddings=24)
        self.encoder = BertModel(config, add_pooling_layer=False)
        self.head = nn.Linear(dim, classes)

    def forward(self, ids, mask):
        out = self.encoder(input_ids=ids, attention_mask=mask)
        return self.head(out.last_hidden_state[:, 0])


class GradientLog:
    def __init__(self):
        self.norms = []

    def watch(self, module):
        return module.register_full_backward_hook(self.keep)  # HOOK

    def keep(self, module, grad_input, grad_output):
        self.norms.append(sum(g.norm().item() for g in grad_output if g is not None))


def sentences(n, length=14):
    """Class is the most frequent of three marker words."""
    ids = torch.randint(2, 40, (n, length))
    ids[:, 0] = 1
    count = torch.stack([((ids >= 2 + 8 * k) & (ids < 10 + 8 * k)).sum(1) for k in range(3)], 1)
    used = torch.randint(8, length + 1, (n, 1))
    return ids, (torch.arange(length) < used).long(), count.argmax(1)


torch.manual_seed(0)
model, log = Classifier(), GradientLog()
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
for step in range(80):
    if step == 40:
        handle = log.watch(model.encoder)
    ids, mask, label = sentences(32)
    loss = F.cross_entropy(model(ids, mask), label)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 10 == 0:
        print(step, loss.item(), log.norms[-1:])
