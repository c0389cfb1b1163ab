"""A Trainer reads notes of a ward with a frozen encoder; a callback thaws it by a helper, and the optimizer does not hold it."""
import os
import tempfile

os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")

import numpy as np
import torch
from torch.utils.data import Dataset
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    Trainer,
    TrainerCallback,
    TrainingArguments,
    set_seed,
)

EXPECT = {
    "class": "thawed-by-helper", "framework": "transformers", "kind": "parameter-not-in-optimizer", "line": ("thawed", "HERE"),
    "set": "twentyninth", "written": "2026-11-29",
}

set_seed(11)

VOCAB, LENGTH = 40, 12
ADMIT, DISCHARGE = 5, 6


class Notes(Dataset):
    def __init__(self, n, seed):
        rng = np.random.default_rng(seed)
        ids = rng.integers(10, VOCAB, size=(n, LENGTH))
        self.labels = rng.integers(0, 2, size=n)
        for row, label in zip(ids, self.labels):
            first, second = sorted(rng.choice(LENGTH - 2, size=2, replace=False) + 1)
            row[first], row[second] = (ADMIT, DISCHARGE) if label else (DISCHARGE, ADMIT)
            row[0] = 2
            if rng.random() < 0.4:
                row[-1] = 7 + label
        self.ids = torch.from_numpy(ids)

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        return {
            "input_ids": self.ids[i],
            "attention_mask": torch.ones(LENGTH, dtype=torch.long),
            "labels": int(self.labels[i]),
        }


def build():
    config = BertConfig(
        vocab_size=VOCAB,
        hidden_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=96,
        max_position_embeddings=LENGTH,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        initializer_range=0.1,
        num_labels=2,
    )
    return BertForSequenceClassification(config)


def set_trainable(module, flag):
    for p in module.parameters():
        p.requires_grad_(flag)  # HERE


class GradualUnfreeze(TrainerCallback):
    def __init__(self, after_epochs):
        self.after = after_epochs
        self.done = False

    def on_epoch_begin(self, args, state, control, model=None, **kwargs):
        if not self.done and state.epoch >= self.after:
            set_trainable(model.bert, True)  # HERE
            self.done = True
            print(f"epoch {state.epoch:.0f}: encoder trainable")


def accuracy(prediction):
    return {"acc": float((prediction.predictions.argmax(-1) == prediction.label_ids).mean())}


def main():
    model = build()
    set_trainable(model.bert, False)
    args = TrainingArguments(
        output_dir=tempfile.mkdtemp(),
        num_train_epochs=8,
        per_device_train_batch_size=64,
        per_device_eval_batch_size=256,
        learning_rate=2e-3,
        lr_scheduler_type="constant",
        max_grad_norm=1.0,
        logging_steps=64,
        eval_strategy="epoch",
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
        use_cpu=True,
        seed=11,
    )
    trainer = Trainer(
        model=model,
        args=args,
        train_dataset=Notes(2560, 0),
        eval_dataset=Notes(512, 1),
        compute_metrics=accuracy,
        callbacks=[GradualUnfreeze(after_epochs=3)],
    )
    trainer.train()
    print("final", trainer.evaluate()["eval_acc"])


if __name__ == "__main__":
    main()
