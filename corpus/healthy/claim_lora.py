"""LoRA by hand on a small frozen BERT for claim classification, with accumulation over two micro-batches. Nothing goes wrong.
Report: https://github.com/pytorch/pytorch/issues/1266 (freezing part of a model and passing only the trainable parameters to the optimizer)

The base weights stay fixed on purpose, the up matrix starts at zero, the linear schedule ends at zero.
"""
import math

import torch
import torch.nn as nn
from transformers import BertConfig, BertForSequenceClassification, get_linear_schedule_with_warmup

EXPECT = {"framework": "transformers", "kind": None, "set": "twentysecond", "written": "2026-11-28"}


class LoRALinear(nn.Module):
    def __init__(self, base, rank=4, alpha=8):
        super().__init__()
        self.base = base
        self.down = nn.Parameter(torch.empty(rank, base.in_features))
        self.up = nn.Parameter(torch.zeros(base.out_features, rank))
        nn.init.kaiming_uniform_(self.down, a=math.sqrt(5))
        self.scale = alpha / rank

    def forward(self, x):
        return self.base(x) + self.scale * (x @ self.down.T @ self.up.T)


def add_lora(model):
    for p in model.bert.parameters():
        p.requires_grad_(False)
    for layer in model.bert.encoder.layer:
        att = layer.attention.self
        att.query, att.value = LoRALinear(att.query), LoRALinear(att.value)
        layer.output.dense = LoRALinear(layer.output.dense)
    return model


def claims(n, gen):
    y = torch.randint(0, 4, (n,), generator=gen)
    x = torch.randint(5, 200, (n, 14), generator=gen)
    hit = torch.rand(n, 14, generator=gen) < 0.35
    x = torch.where(hit, 5 + y[:, None] * 12 + torch.randint(0, 12, (n, 14), generator=gen), x)
    x[:, 0] = 1
    return x, y


def accuracy(model, x, y):
    was_training = model.training
    model.eval()
    with torch.no_grad():
        acc = (model(input_ids=x).logits.argmax(1) == y).float().mean().item()
    model.train(was_training)
    return acc


def main():
    torch.manual_seed(0)
    gen = torch.Generator().manual_seed(3)
    (x, y), (xv, yv) = claims(1200, gen), claims(300, gen)
    config = BertConfig(vocab_size=200, hidden_size=64, num_hidden_layers=2, num_attention_heads=4,
                        intermediate_size=128, max_position_embeddings=32, num_labels=4,
                        hidden_dropout_prob=0.05, attention_probs_dropout_prob=0.05, initializer_range=0.12)
    model = add_lora(BertForSequenceClassification(config))
    trainable = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trainable, lr=8e-3)
    steps, accum = 120, 2
    scheduler = get_linear_schedule_with_warmup(optimizer, 12, steps)
    model.train()
    for step in range(steps):
        total = 0.0
        for _ in range(accum):
            idx = torch.randint(0, len(x), (24,), generator=gen)
            loss = model(input_ids=x[idx], labels=y[idx]).loss / accum
            loss.backward()
            total += loss.item()
        nn.utils.clip_grad_norm_(trainable, 1.0)
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad()
        if step % 30 == 29:
            print(f"step {step + 1} loss {total:.3f} val acc {accuracy(model, xv, yv):.3f}")


if __name__ == "__main__":
    main()
