"""A classifier of short texts in the Trainer, whose plateau scheduler waits for the accuracy to fall: its mode is left
as it is, though the model is chosen by accuracy."""
import tempfile

import numpy as np
import torch
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments, set_seed
from transformers.utils import logging

EXPECT = {
    "class": "metric of the wrong direction",
    "kind": "plateau-wrong-direction",
    "line": ["cause", "HERE"],
    "framework": "transformers",
    "set": "ledger",
    "written": "2026-11-29",
}

logging.set_verbosity_error()
set_seed(3)
CLASSES, WORDS, LENGTH = 4, 40, 8


def notes(count):
    kinds = torch.randint(0, CLASSES, (count,))
    topic = kinds[:, None] * 10 + torch.randint(0, 10, (count, LENGTH))
    words = torch.where(torch.rand(count, LENGTH) < 0.4, topic, torch.randint(0, WORDS, (count, LENGTH)))
    return [{"input_ids": row, "labels": kind} for row, kind in zip(words, kinds)]


def accuracy(prediction):
    return {"accuracy": float((np.argmax(prediction.predictions, -1) == prediction.label_ids).mean())}


model = BertForSequenceClassification(
    BertConfig(
        vocab_size=WORDS,
        hidden_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=LENGTH,
        num_labels=CLASSES,
    )
)
settings = TrainingArguments(
    output_dir=tempfile.mkdtemp(),
    num_train_epochs=12,
    per_device_train_batch_size=16,
    per_device_eval_batch_size=200,
    learning_rate=1e-3,
    lr_scheduler_type="reduce_lr_on_plateau",  # HERE
    lr_scheduler_kwargs={"patience": 1},
    metric_for_best_model="accuracy",
    greater_is_better=True,
    eval_strategy="epoch",
    save_strategy="no",
    report_to=[],
    disable_tqdm=True,
    use_cpu=True,
    seed=3,
)
train, held_out = notes(256), notes(200)
Trainer(model, settings, train_dataset=train, eval_dataset=held_out, compute_metrics=accuracy).train()
