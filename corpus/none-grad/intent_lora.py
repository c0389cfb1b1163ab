"""Fine-tunes a small BERT with hand-written LoRA and gradient checkpointing for intent classification; only the classifier learns, the LoRA matrices get no gradient at all.

Report: https://github.com/pytorch/pytorch/issues/7617 (checkpoint(function, *args) gives an output without requires_grad when no input has it, although the function has trainable parameters; https://github.com/huggingface/transformers/issues/21381 is the same with frozen embeddings, use_reentrant=False mends it)
What is seen: every lora_b stays exactly zero and its .grad is None, the accuracy stays well below that of the same script with
use_reentrant=False.
"""
import math

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint
from transformers import BertConfig, BertModel

EXPECT = {
    "framework": "transformers", "kind": "none-grad", "line": ("cut", "CAUSE"),
    "what": "reentrant gradient checkpointing with frozen embeddings: no input of the checkpointed layers requires grad, so the LoRA weights get no gradient; use use_reentrant=False or let the embedding output require grad",
    "set": "nineteenth", "written": "2026-11-27",
}


class LoraLinear(nn.Module):
    def __init__(self, base, rank=8, alpha=16):
        super().__init__()
        self.base = base
        self.lora_a = nn.Parameter(torch.randn(rank, base.in_features) / math.sqrt(rank))
        self.lora_b = nn.Parameter(torch.zeros(base.out_features, rank))
        self.scale = alpha / rank

    def forward(self, x):
        return self.base(x) + (x @ self.lora_a.t() @ self.lora_b.t()) * self.scale


class IntentModel(nn.Module):
    def __init__(self, num_labels=3):
        super().__init__()
        config = BertConfig(vocab_size=60, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64,
                            max_position_embeddings=20, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
                            initializer_range=0.3)
        self.bert = BertModel(config, add_pooling_layer=False)
        self.bert.requires_grad_(False)
        for layer in self.bert.encoder.layer:
            att = layer.attention.self
            att.query = LoraLinear(att.query)
            att.value = LoraLinear(att.value)
            layer.output.dense = LoraLinear(layer.output.dense)
        self.classifier = nn.Linear(config.hidden_size, num_labels)

    def forward(self, ids):
        hidden = self.bert.embeddings(input_ids=ids)
        for layer in self.bert.encoder.layer:
            if self.training:
                hidden = checkpoint(layer, hidden, use_reentrant=True)  # CAUSE
            else:
                hidden = layer(hidden)
        return self.classifier(hidden[:, 0])


def utterances(n, gen):
    ids = torch.randint(3, 60, (n, 12), generator=gen)
    ids[:, 0] = 1
    a = (ids[:, 1:] < 20).sum(1)
    b = (ids[:, 1:] >= 42).sum(1)
    labels = torch.where(a > b, 0, torch.where(a < b, 1, 2))
    return ids, labels


def main():
    torch.manual_seed(0)
    gen = torch.Generator().manual_seed(11)
    model = IntentModel()
    trainable = [p for p in model.parameters() if p.requires_grad]
    print("trainable parameters:", sum(p.numel() for p in trainable))
    optimizer = torch.optim.AdamW(trainable, lr=5e-3, weight_decay=0.0)
    val_ids, val_labels = utterances(400, gen)
    model.train()
    for step in range(200):
        ids, labels = utterances(32, gen)
        loss = F.cross_entropy(model(ids), labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if step % 40 == 0 or step == 199:
            model.eval()
            with torch.no_grad():
                acc = (model(val_ids).argmax(1) == val_labels).float().mean()
            model.train()
            print(f"step {step:3d} loss {loss.item():.4f} val acc {acc.item():.3f}")
    change = max(m.lora_b.abs().max().item() for m in model.modules() if isinstance(m, LoraLinear))
    print("largest entry of the LoRA B matrices:", change)


main()
