"""Continuation of chord progressions with a small GPT-2 trained with the Trainer on generated songs.

Report: https://github.com/huggingface/transformers/pull/44642
(also https://github.com/huggingface/transformers/issues/47394)
"""
import logging
import warnings

import numpy as np
import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments, set_seed

EXPECT = {
    "kind": "targets-misaligned",
    "line": ("shifted", "cause"),
    "plain": "The loss falls well, but the continuations are nonsense: the next chord is hardly ever right.",
    "set": "twentyfourth",
    "written": "2026-11-28",
}

warnings.filterwarnings("ignore")
logging.getLogger("transformers").setLevel(logging.ERROR)
CHORDS, LENGTH = 24, 17
RULE = np.random.default_rng(77).permutation(CHORDS)


def make_songs(n, seed):
    rng = np.random.default_rng(seed)
    songs = np.empty((n, LENGTH), dtype=np.int64)
    songs[:, 0] = rng.integers(0, CHORDS, n)
    for t in range(1, LENGTH):
        surprise = rng.random(n) < 0.05
        songs[:, t] = np.where(surprise, rng.integers(0, CHORDS, n), RULE[songs[:, t - 1]])
    return torch.tensor(songs)


class Songs(torch.utils.data.Dataset):
    def __init__(self, n, seed):
        self.songs = make_songs(n, seed)

    def __len__(self):
        return len(self.songs)

    def __getitem__(self, i):
        song = self.songs[i]
        return {"input_ids": song[:-1], "labels": song[1:]}  # <-- cause


class Report(TrainerCallback):
    def on_log(self, args, state, control, logs=None, **kw):
        if logs and "loss" in logs:
            print(f"step {state.global_step}  loss {float(logs['loss']):.4f}")


def next_chord_accuracy(model, songs):
    model.eval()
    with torch.no_grad():
        logits = model(input_ids=songs[:, :8]).logits[:, -1]
    return (logits.argmax(-1) == songs[:, 8]).float().mean().item()


def main():
    set_seed(10)
    config = GPT2Config(vocab_size=CHORDS, n_positions=LENGTH, n_embd=48, n_layer=2, n_head=4,
                        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=0, eos_token_id=0)
    model = GPT2LMHeadModel(config)
    args = TrainingArguments(
        output_dir="/tmp/chord_progressions", per_device_train_batch_size=32, max_steps=160, learning_rate=3e-3,
        warmup_steps=10, logging_steps=20, report_to=[], save_strategy="no", disable_tqdm=True, use_cpu=True,
        seed=10, dataloader_pin_memory=False)
    trainer = Trainer(model=model, args=args, train_dataset=Songs(4000, 1), callbacks=[Report()])
    trainer.train()
    songs = make_songs(400, 2)
    print(f"next chord right: {next_chord_accuracy(model, songs):.3f}")
    prompt = songs[:1, :6]
    out = model.generate(prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=6, do_sample=False,
                         pad_token_id=0, eos_token_id=CHORDS)
    print("song         ", songs[0, :12].tolist())
    print("continuation ", out[0].tolist())


if __name__ == "__main__":
    main()
