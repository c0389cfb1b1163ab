"""A tiny GPT-2 that writes Python help text, character by character, trained with Trainer.

The training loss falls nicely; the text written by the model is garbled.
Follows https://github.com/huggingface/transformers/pull/44642 (and issue 32944 named there)
"""
import os
import tempfile

import torch
from pydoc_data.topics import topics
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments, set_seed

EXPECT = {
    "kind": "targets-misaligned",
    "line": ("shifted", "HERE"),
    "plain": "the training loss falls, but the next-character accuracy stays low and written text skips letters",
    "set": "twentyfifth",
    "written": "2026-11-28",
}

BLOCK = 48


def read_text():
    names = sorted(topics)[:30]
    text = "\n".join(topics[n] for n in names)
    return "".join(c if 32 <= ord(c) < 127 else " " for c in text)[:90000]


class Characters(Dataset):
    def __init__(self, text, vocab):
        self.ids = torch.tensor([vocab[c] for c in text])

    def __len__(self):
        return (len(self.ids) - 1) // BLOCK

    def __getitem__(self, i):
        start = i * BLOCK
        window = self.ids[start:start + BLOCK + 1]
        return {"input_ids": window[:-1], "labels": window[1:]}  # HERE


def next_character_accuracy(model, ids):
    model.eval()
    hit, count = 0, 0
    with torch.no_grad():
        for start in range(0, len(ids) - BLOCK, BLOCK):
            window = ids[start:start + BLOCK].unsqueeze(0)
            guess = model(input_ids=window).logits.argmax(-1)
            hit += (guess[0, :-1] == window[0, 1:]).sum().item()
            count += BLOCK - 1
    return hit / count


def write(model, vocab, prompt, n):
    back = {i: c for c, i in vocab.items()}
    ids = torch.tensor([[vocab[c] for c in prompt]])
    with torch.no_grad():
        for _ in range(n):
            logits = model(input_ids=ids[:, -BLOCK:]).logits[:, -1]
            ids = torch.cat([ids, logits.argmax(-1, keepdim=True)], dim=1)
    return "".join(back[i] for i in ids[0].tolist())


def main():
    set_seed(5)
    text = read_text()
    vocab = {c: i for i, c in enumerate(sorted(set(text)))}
    cut = int(len(text) * 0.93)
    train = Characters(text[:cut], vocab)
    held = Characters(text[cut:], vocab)
    config = GPT2Config(vocab_size=len(vocab), n_positions=BLOCK, n_embd=64, n_layer=2, n_head=4,
                        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=0, eos_token_id=0)
    model = GPT2LMHeadModel(config)
    with tempfile.TemporaryDirectory() as folder:
        args = TrainingArguments(
            output_dir=os.path.join(folder, "out"), per_device_train_batch_size=32, num_train_epochs=5,
            learning_rate=3e-3, warmup_steps=20, weight_decay=0.01, logging_steps=40, save_strategy="no",
            report_to=[], use_cpu=True, disable_tqdm=True, dataloader_num_workers=0,
        )
        trainer = Trainer(model=model, args=args, train_dataset=train)
        before = next_character_accuracy(model, held.ids)
        trainer.train()
    after = next_character_accuracy(model, held.ids)
    print(f"next character accuracy before {before:.3f} after {after:.3f}")
    print("written:", write(model, vocab, "The statement ", 60))


if __name__ == "__main__":
    main()
