"""Healthy: tiny BERT from config for sequence classification, padding masks, param groups without weight decay, accumulation."""

import torch
from torch.utils.data import DataLoader
from transformers import BertConfig, BertForSequenceClassification, get_linear_schedule_with_warmup

EXPECT = {"kind": None}


def collate(batch):
    n = max(len(t) for t, _ in batch)
    ids = torch.stack([torch.nn.functional.pad(t, (0, n - len(t))) for t, _ in batch])
    return {"input_ids": ids, "attention_mask": (ids > 0).long(), "labels": torch.tensor([y for _, y in batch])}


def main():
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=50, hidden_size=24, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32, num_labels=2
    )
    model = BertForSequenceClassification(config)
    no_decay = ("bias", "LayerNorm.weight")
    groups = [
        {"params": [p for n, p in model.named_parameters() if not n.endswith(no_decay)], "weight_decay": 0.01},
        {"params": [p for n, p in model.named_parameters() if n.endswith(no_decay)], "weight_decay": 0.0},
    ]
    opt = torch.optim.AdamW(groups, lr=1e-3)
    sched = get_linear_schedule_with_warmup(opt, 2, 10)
    data = [(torch.randint(1, 50, (int(torch.randint(3, 12, ())),)), i % 2) for i in range(24)]
    total = 0.0
    for step, batch in enumerate(DataLoader(data, batch_size=4, shuffle=True, collate_fn=collate)):
        loss = model(**batch).loss / 2
        loss.backward()
        total += loss.detach().float()
        if step % 2:
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            sched.step()
            opt.zero_grad()
    print(total.item())


if __name__ == "__main__":
    main()
