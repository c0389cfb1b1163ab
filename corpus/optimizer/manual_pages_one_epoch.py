"""The linear schedule is given the number of batches of one epoch as its total, so the learning rate is zero from the
second epoch on and the remaining epochs change nothing.

Report: a schedule that ends too early and leaves the learning rate at 0: deepset-ai/FARM issue #46,
huggingface/transformers issue #26827
"""
import math
import re

import torch
from pydoc_data.topics import topics
from torch.utils.data import Dataset
from transformers import (GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments,
                          get_linear_schedule_with_warmup, set_seed)

EXPECT = {
    "kind": "learning-rate-zero",
    "line": ("cause", "HERE"),
    "plain": "eval loss 4.571 after 4 epochs and exactly the same after 5 (train loss flat at 4.43, learning rate 0); with the total of all epochs 4.178 (train loss 3.72)",
    "set": "twentyseventh",
    "written": "2026-11-29",
}


def tokenize():
    text = "\n".join(topics[k] for k in sorted(topics)[:30]).lower()
    words = re.findall(r"[a-z_]+|[^\sa-z_]|\n", text)
    freq = {}
    for w in words:
        freq[w] = freq.get(w, 0) + 1
    keep = [w for w, _ in sorted(freq.items(), key=lambda kv: -kv[1])[:598]]
    vocab = {w: i for i, w in enumerate(keep)}
    return words, vocab


class Pages(Dataset):
    def __init__(self, ids, block=48):
        n = len(ids) // block
        self.rows = torch.tensor(ids[: n * block]).view(n, block)

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return {"input_ids": self.rows[i], "labels": self.rows[i].clone()}


def build_model(vocab_size):
    config = GPT2Config(
        vocab_size=vocab_size, n_positions=48, n_embd=64, n_layer=2, n_head=4,
        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=0, eos_token_id=0,
    )
    return GPT2LMHeadModel(config)


def main():
    set_seed(13)
    torch.manual_seed(13)
    words, vocab = tokenize()
    for special in ("<unk>", "<newline>"):
        vocab[special] = len(vocab)
    unk = vocab["<unk>"]
    ids = [vocab["<newline>"] if w == "\n" else vocab.get(w, unk) for w in words]
    cut = int(len(ids) * 0.9)
    train, test = Pages(ids[:cut]), Pages(ids[cut:])

    model = build_model(len(vocab))
    decay = [p for p in model.parameters() if p.dim() >= 2]
    plain = [p for p in model.parameters() if p.dim() < 2]
    optimizer = torch.optim.AdamW(
        [{"params": decay, "weight_decay": 0.01}, {"params": plain, "weight_decay": 0.0}], lr=2e-3)
    batch, epochs = 8, 4
    steps = math.ceil(len(train) / batch)
    scheduler = get_linear_schedule_with_warmup(optimizer, 10, steps)  # HERE

    args = TrainingArguments(
        output_dir="/tmp/manual_pages_out", num_train_epochs=epochs,
        per_device_train_batch_size=batch, logging_steps=45, save_strategy="no", report_to=[],
        use_cpu=True, disable_tqdm=True, seed=13,
    )
    trainer = Trainer(model=model, args=args, train_dataset=train, eval_dataset=test,
                      optimizers=(optimizer, scheduler))
    before = trainer.evaluate()["eval_loss"]
    trainer.train()
    after = trainer.evaluate()["eval_loss"]
    print(f"words {len(ids)}  eval loss {before:.3f} -> {after:.3f}")


if __name__ == "__main__":
    main()
