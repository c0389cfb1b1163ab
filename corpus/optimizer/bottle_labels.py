"""Grapes by their tasting notes in the Trainer: the warm-up of 500 steps comes from a recipe for more data, and there are
60 steps."""
import random
import tempfile

import numpy as np
import torch
from torch.utils.data import Dataset
from transformers import (
    BertConfig, BertForMaskedLM, BertForSequenceClassification, Trainer, TrainingArguments, set_seed,
)
from transformers.utils import logging as hf_logging

EXPECT = {
    "class": "warm-up longer than the training",
    "kind": "schedule-too-slow",
    "line": ["cause", "HERE"],
    "framework": "transformers",
    "set": "twentyninth",
    "written": "2026-11-29",
}

hf_logging.set_verbosity_error()

PAD, CLS, MASK = 0, 1, 2
GRAPES, WORDS, LENGTH = 5, 10, 16
VOCAB = 3 + GRAPES * WORDS + 40


def tasting_note(rng):
    """A note talks mostly in the words of one grape, among common words."""
    grape = rng.randrange(GRAPES)
    other = rng.randrange(GRAPES)
    words = []
    for _ in range(LENGTH - 1):
        u = rng.random()
        if u < 0.6:
            words.append(3 + grape * WORDS + rng.randrange(WORDS))
        elif u < 0.68:
            words.append(3 + other * WORDS + rng.randrange(WORDS))
        else:
            words.append(3 + GRAPES * WORDS + rng.randrange(40))
    return [CLS] + words, grape


class Notes(Dataset):
    def __init__(self, items):
        self.items = items

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        ids, grape = self.items[i]
        return {"input_ids": torch.tensor(ids), "labels": torch.tensor(grape)}


def config():
    return BertConfig(
        vocab_size=VOCAB, hidden_size=48, num_hidden_layers=2, num_attention_heads=4, intermediate_size=96,
        max_position_embeddings=LENGTH, pad_token_id=PAD, num_labels=GRAPES,
        hidden_dropout_prob=0.1, attention_probs_dropout_prob=0.1, initializer_range=0.06,
    )


def pretrain(notes, steps=250):
    model = BertForMaskedLM(config())
    opt = torch.optim.AdamW(model.parameters(), lr=2e-3)
    ids = torch.tensor([n[0] for n in notes])
    for step in range(steps):
        x = ids[torch.randint(0, len(ids), (48,))].clone()
        hide = torch.rand(x.shape) < 0.2
        hide[:, 0] = False
        labels = torch.where(hide, x, torch.full_like(x, -100))
        x[hide] = MASK
        loss = model(input_ids=x, labels=labels).loss
        opt.zero_grad()
        loss.backward()
        opt.step()
        if (step + 1) % 50 == 0:
            print(f"pretraining step {step + 1} loss {loss.item():.3f}")
    return model


def metrics(pred):
    return {"accuracy": float((np.argmax(pred.predictions, -1) == pred.label_ids).mean())}


def main():
    set_seed(12)
    rng = random.Random(12)
    base = pretrain([tasting_note(rng) for _ in range(4000)])
    model = BertForSequenceClassification(config())
    model.bert.embeddings.load_state_dict(base.bert.embeddings.state_dict())
    model.bert.encoder.load_state_dict(base.bert.encoder.state_dict())
    train = Notes([tasting_note(rng) for _ in range(640)])
    test = Notes([tasting_note(rng) for _ in range(300)])
    args = TrainingArguments(
        output_dir=tempfile.mkdtemp(), num_train_epochs=3, per_device_train_batch_size=32,
        per_device_eval_batch_size=100, learning_rate=5e-4, weight_decay=0.01,
        warmup_steps=500,  # HERE
        eval_strategy="epoch", save_strategy="no", logging_steps=20, report_to=[], disable_tqdm=True, use_cpu=True,
        seed=12,
    )
    trainer = Trainer(model=model, args=args, train_dataset=train, eval_dataset=test, compute_metrics=metrics)
    trainer.train()
    print("final", {k: round(v, 3) for k, v in trainer.evaluate().items() if k in ("eval_loss", "eval_accuracy")})


if __name__ == "__main__":
    main()
