"""Labels are shifted by one in the dataset although the causal LM head of transformers shifts them again, so the model
learns to predict two characters ahead.

Report: huggingface/transformers#44642 and #32944 (users pre-shift labels and train next-next-token prediction),
#2033
"""
import tempfile

import torch
from pydoc_data.topics import topics
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments, set_seed

EXPECT = {
    "kind": "targets-misaligned",
    "line": ("shifted", "HERE"),
    "plain": "Next-character accuracy 0.185, training loss 2.97, text is garbage; with labels = input_ids 0.283 and loss 2.54 after the same 350 steps.",
    "set": "twentyseventh",
    "written": "2026-11-29",
}


set_seed(7)

TEXT = "\n".join(topics[k] for k in sorted(topics))[:120000]
CHARS = sorted(set(TEXT))
LOOKUP = {c: i for i, c in enumerate(CHARS)}
BLOCK = 48


class PageChunks(Dataset):
    def __init__(self, text, stride=24):
        self.ids = torch.tensor([LOOKUP[c] for c in text])
        self.starts = list(range(0, len(self.ids) - BLOCK - 1, stride))

    def __len__(self):
        return len(self.starts)

    def __getitem__(self, i):
        s = self.starts[i]
        chunk = self.ids[s:s + BLOCK + 1]
        return {"input_ids": chunk[:-1], "labels": chunk[1:]}  # HERE


def build_model():
    cfg = GPT2Config(
        vocab_size=len(CHARS), n_positions=BLOCK + 64, n_embd=64, n_layer=2, n_head=4,
        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=0, eos_token_id=0,
    )
    return GPT2LMHeadModel(cfg)


@torch.no_grad()
def next_char_accuracy(model, text, n=100):
    model.eval()
    ids = torch.tensor([LOOKUP[c] for c in text])
    hits = total = 0
    for s in range(0, n * BLOCK, BLOCK):
        chunk = ids[s:s + BLOCK + 1]
        guess = model(input_ids=chunk[None, :-1]).logits.argmax(-1)[0]
        hits += (guess == chunk[1:]).sum().item()
        total += BLOCK
    return hits / total


@torch.no_grad()
def write(model, prompt, n=60):
    model.eval()
    ids = torch.tensor([[LOOKUP[c] for c in prompt]])
    for _ in range(n):
        nxt = model(input_ids=ids).logits[:, -1].argmax(-1, keepdim=True)
        ids = torch.cat([ids, nxt], 1)
    return "".join(CHARS[i] for i in ids[0].tolist())


def main():
    train = PageChunks(TEXT[:110000])
    model = build_model()
    with tempfile.TemporaryDirectory() as out:
        args = TrainingArguments(
            output_dir=out, max_steps=350, per_device_train_batch_size=24, learning_rate=4e-3,
            warmup_steps=20, lr_scheduler_type="cosine", logging_steps=50, save_strategy="no",
            report_to=[], use_cpu=True, disable_tqdm=True, weight_decay=0.01, seed=7,
        )
        trainer = Trainer(model=model, args=args, train_dataset=train)
        trainer.train()
    print("next char accuracy", round(next_char_accuracy(model, TEXT[110000:]), 3))
    print(repr(write(model, "The statement ")))


if __name__ == "__main__":
    main()
