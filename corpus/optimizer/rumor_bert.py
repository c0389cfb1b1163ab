"""Fine-tunes a small BERT classifier from a config for three epochs with a linear warmup schedule; after the first epoch the learning rate is zero and nothing is learnt any more.

Report: https://github.com/huggingface/transformers/issues/556 (training goes on beyond the total number of steps that was given to the warmup-linear schedule, the learning rate is set to 0.0; the total was computed wrongly. Likewise https://github.com/huggingface/setfit/issues/137: the step calculation ignores the epochs)

Effect: from step 45 on the learning rate is exactly 0, the weights do not change and the accuracy stays at that of the first epoch; with the right total it goes on rising.
"""
import torch
from torch.utils.data import DataLoader, TensorDataset
from transformers import BertConfig, BertForSequenceClassification, get_linear_schedule_with_warmup

EXPECT = {
    "framework": "transformers", "kind": "learning-rate-zero", "line": ("cause", "OTHER"),
    "what": "num_training_steps counts the batches of one epoch only, so the linear schedule has reached zero after the first of three epochs; use len(loader) * epochs.",
    "set": "eighteenth", "written": "2026-11-27",
}

VOCAB, LENGTH, KINDS = 100, 12, 3


def posts(n, seed):
    gen = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, KINDS, (n,), generator=gen)
    ids = torch.randint(20, VOCAB, (n, LENGTH), generator=gen)
    topical = 2 + labels[:, None] * 4 + torch.randint(0, 4, (n, LENGTH), generator=gen)
    ids = torch.where(torch.rand(n, LENGTH, generator=gen) < 0.5, topical, ids)
    ids[:, 0] = 1
    return ids, labels


@torch.no_grad()
def accuracy(model, ids, labels):
    model.eval()
    return (model(input_ids=ids).logits.argmax(-1) == labels).float().mean().item()


def main(epochs=3):
    torch.manual_seed(0)
    loader = DataLoader(TensorDataset(*posts(1440, 1)), batch_size=32, shuffle=True)
    val_ids, val_labels = posts(300, 2)
    model = BertForSequenceClassification(BertConfig(
        vocab_size=VOCAB, hidden_size=48, num_hidden_layers=2, num_attention_heads=4, intermediate_size=96,
        max_position_embeddings=LENGTH, num_labels=KINDS))
    optimizer = torch.optim.AdamW(model.parameters(), lr=6e-4)
    total_steps = len(loader)  # CAUSE
    scheduler = get_linear_schedule_with_warmup(optimizer, num_warmup_steps=int(0.1 * total_steps),
                                                num_training_steps=total_steps)  # OTHER
    step = 0
    for epoch in range(epochs):
        for ids, labels in loader:
            model.train()
            loss = model(input_ids=ids, labels=labels).loss
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
            step += 1
            if step % 15 == 0:
                print(f"epoch {epoch} step {step} lr {scheduler.get_last_lr()[0]:.1e} loss {loss.item():.3f}")
        print(f"epoch {epoch} accuracy {accuracy(model, val_ids, val_labels):.3f}")


if __name__ == "__main__":
    main()
