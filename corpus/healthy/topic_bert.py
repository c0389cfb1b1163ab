"""Trains a small BERT topic classifier from a config; warmup, then a linear schedule that ends at zero, no weight decay on norms and biases. Nothing goes wrong."""
import torch
from transformers import BertConfig, BertForSequenceClassification, get_linear_schedule_with_warmup

EXPECT = {"framework": "transformers", "kind": None, "set": "eighteenth", "written": "2026-11-27"}

VOCAB, LENGTH, TOPICS = 100, 12, 3


def documents(n, gen):
    labels = torch.randint(0, TOPICS, (n,), generator=gen)
    ids = torch.randint(20, VOCAB, (n, LENGTH), generator=gen)
    topical = 2 + labels[:, None] * 4 + torch.randint(0, 4, (n, LENGTH), generator=gen)
    ids = torch.where(torch.rand(n, LENGTH, generator=gen) < 0.7, topical, ids)
    ids[:, 0] = 1
    return ids, labels


def param_groups(model, decay=0.01):
    with_decay, without = [], []
    for name, p in model.named_parameters():
        (without if p.ndim == 1 else with_decay).append(p)
    return [{"params": with_decay, "weight_decay": decay}, {"params": without, "weight_decay": 0.0}]


def main(total=110):
    torch.manual_seed(0)
    gen = torch.Generator().manual_seed(4)
    model = BertForSequenceClassification(BertConfig(
        vocab_size=VOCAB, hidden_size=48, num_hidden_layers=2, num_attention_heads=4, intermediate_size=96,
        max_position_embeddings=LENGTH, num_labels=TOPICS))
    optimizer = torch.optim.AdamW(param_groups(model), lr=1e-3)
    scheduler = get_linear_schedule_with_warmup(optimizer, num_warmup_steps=10, num_training_steps=total)
    val_ids, val_labels = documents(300, gen)
    for step in range(total):
        model.train()
        ids, labels = documents(32, gen)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = model(input_ids=ids, labels=labels).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        if (step + 1) % 22 == 0:
            model.eval()
            with torch.no_grad():
                acc = (model(input_ids=val_ids).logits.argmax(-1) == val_labels).float().mean().item()
            print(f"step {step + 1} lr {scheduler.get_last_lr()[0]:.2e} loss {loss.item():.3f} acc {acc:.3f}")


if __name__ == "__main__":
    main()
