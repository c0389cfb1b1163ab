"""Low-rank adapters on a frozen text encoder, by the Trainer: what does the caller want, from the words of a dialogue turn?

What looks suspicious: nearly all weights get no gradient; of the adapters, every 'down' matrix has a gradient of exactly zero in the
first step (https://github.com/microsoft/LoRA/issues/167 asks about such zeros). It is right: the encoder is frozen on purpose, and
the 'up' matrices start at zero, so the others get their gradient from the second step on; all of them move.
"""
import tempfile
import warnings

import numpy as np
import torch
from torch import nn
from torch.utils.data import Dataset
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainerCallback, TrainingArguments
from transformers.utils import logging

EXPECT = {
    "framework": "transformers",
    "kind": None,
    "set": "twentythird",
    "written": "2026-11-28",
}

logging.set_verbosity_error()
warnings.filterwarnings("ignore")
VOCABULARY, LENGTH, INTENTS = 120, 20, 6


class Turns(Dataset):
    """Turns of made-up words: each intent has fifteen words of its own, most words of a turn are common to all."""

    def __init__(self, n, seed):
        rng = np.random.default_rng(seed)
        self.labels = rng.integers(0, INTENTS, size=n)
        self.ids = rng.integers(3, 30, size=(n, LENGTH))
        for i, intent in enumerate(self.labels):
            own = rng.random(LENGTH) < 0.35
            stray = rng.random(LENGTH) < 0.25
            self.ids[i, stray] = rng.integers(30, VOCABULARY, size=int(stray.sum()))
            self.ids[i, own] = 30 + 15 * intent + rng.integers(0, 15, size=int(own.sum()))

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        return {"input_ids": torch.from_numpy(self.ids[i]), "labels": int(self.labels[i])}


class Adapted(nn.Module):
    def __init__(self, base, rank=8, alpha=16):
        super().__init__()
        self.base = base
        self.down = nn.Linear(base.in_features, rank, bias=False)
        self.up = nn.Linear(rank, base.out_features, bias=False)
        nn.init.zeros_(self.up.weight)
        self.scale = alpha / rank

    def forward(self, x):
        return self.base(x) + self.scale * self.up(self.down(x))


def build():
    config = BertConfig(vocab_size=VOCABULARY, hidden_size=64, num_hidden_layers=2, num_attention_heads=4, intermediate_size=128,
                        max_position_embeddings=LENGTH, num_labels=INTENTS, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
                        initializer_range=0.15)
    model = BertForSequenceClassification(config)
    model.bert.requires_grad_(False)
    for layer in model.bert.encoder.layer:
        attention = layer.attention.self
        attention.query, attention.value = Adapted(attention.query), Adapted(attention.value)
        layer.intermediate.dense, layer.output.dense = Adapted(layer.intermediate.dense), Adapted(layer.output.dense)
    free = sum(p.numel() for p in model.parameters() if p.requires_grad)
    print(f"trainable {free} of {sum(p.numel() for p in model.parameters())}")
    return model


class Show(TrainerCallback):
    def on_log(self, args, state, control, logs=None, **kwargs):
        if "loss" in logs:
            print(f"step {state.global_step:3d}  loss {float(logs['loss']):.4f}")
        elif "eval_accuracy" in logs:
            print(f"step {state.global_step:3d}  held-out accuracy {float(logs['eval_accuracy']):.3f}")


def accuracy(prediction):
    return {"accuracy": float(np.mean(prediction.predictions.argmax(-1) == prediction.label_ids))}


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        args = TrainingArguments(output_dir=folder, num_train_epochs=8, per_device_train_batch_size=32, per_device_eval_batch_size=200,
                                 learning_rate=3e-3, warmup_steps=20, logging_steps=40, seed=3, eval_strategy="epoch",
                                 save_strategy="no", report_to=[], disable_tqdm=True, use_cpu=True)
        trainer = Trainer(model=build(), args=args, train_dataset=Turns(2000, seed=1), eval_dataset=Turns(500, seed=2),
                          compute_metrics=accuracy, callbacks=[Show()])
        trainer.remove_callback(next(c for c in trainer.callback_handler.callbacks if type(c).__name__ == "PrinterCallback"))
        trainer.train()


if __name__ == "__main__":
    main()
