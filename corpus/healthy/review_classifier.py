"""Fine-tunes a small DistilBERT on synthetic reviews with accelerate and gradient accumulation; healthy.

The optimizer and the scheduler are called in every micro-batch inside accelerator.accumulate, where the prepared ones skip all but the
last; gradients are clipped only when they are synchronised, the embeddings are frozen on purpose and the rate ends at zero.
"""
import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader, TensorDataset
from transformers import DistilBertConfig, DistilBertForSequenceClassification, get_linear_schedule_with_warmup

EXPECT = {"framework": "accelerate", "kind": None, "set": "nineteenth", "written": "2026-11-27"}


def reviews(n, gen):
    ids = torch.randint(10, 80, (n, 16), generator=gen)
    ids[:, 0] = 1
    good = (ids[:, 1:] < 30).sum(1)
    bad = (ids[:, 1:] >= 60).sum(1)
    length = torch.randint(10, 17, (n,), generator=gen)
    mask = (torch.arange(16)[None] < length[:, None]).long()
    return TensorDataset(ids, mask, (good > bad).long())


def evaluate(model, loader):
    model.eval()
    hits = total = 0
    with torch.no_grad():
        for ids, mask, labels in loader:
            hits += (model(input_ids=ids, attention_mask=mask).logits.argmax(1) == labels).sum().item()
            total += len(labels)
    model.train()
    return hits / total


def main():
    torch.manual_seed(0)
    gen = torch.Generator().manual_seed(3)
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    config = DistilBertConfig(vocab_size=80, dim=32, n_layers=2, n_heads=4, hidden_dim=64, max_position_embeddings=16,
                              dropout=0.05, attention_dropout=0.05, seq_classif_dropout=0.05, num_labels=2, initializer_range=0.15)
    model = DistilBertForSequenceClassification(config)
    model.distilbert.embeddings.requires_grad_(False)
    train = DataLoader(reviews(1560, gen), batch_size=16, shuffle=True, generator=gen)
    val = DataLoader(reviews(400, gen), batch_size=100)
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=3e-3)
    epochs = 4
    updates = epochs * ((len(train) + 1) // 2)
    scheduler = get_linear_schedule_with_warmup(optimizer, 15, updates)
    model, optimizer, train, val, scheduler = accelerator.prepare(model, optimizer, train, val, scheduler)
    done = 0
    for epoch in range(epochs):
        for ids, mask, labels in train:
            with accelerator.accumulate(model):
                loss = model(input_ids=ids, attention_mask=mask, labels=labels).loss
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
                    done += 1
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
        print(f"epoch {epoch} updates {done} loss {loss.item():.4f} val acc {evaluate(model, val):.3f} lr {scheduler.get_last_lr()[0]:.2e}")


if __name__ == "__main__":
    main()
