"""Rows of knitting are written by a small GPT-2 whose end mark doubles as padding: no label is the end mark, so no row
ends.

After mlabonne/llm-course#33 and huggingface/alignment-handbook#127.
"""

import random
import tempfile

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments, set_seed

EXPECT = {
    "class": "end mark is padding",
    "kind": "end-never-learned",
    "framework": "transformers",
    "line": ("cause", "HERE"),
    "set": "twentyeighth",
    "written": "2026-11-29",
}

END = 0
PAD = 0
START = 1
COUNTS = {n: 1 + n for n in range(2, 9)}
STITCHES = {"knit": 10, "purl": 11, "slip": 12, "yarn": 13}
VOCAB = 14
PATTERNS = [("knit",), ("knit", "purl"), ("slip", "knit"), ("yarn", "purl", "knit")]
MARKS = [20, 21, 22, 23]


def write_row(rng):
    which = rng.randrange(len(PATTERNS))
    n = rng.choice(list(COUNTS))
    pattern = PATTERNS[which]
    body = [STITCHES[pattern[i % len(pattern)]] for i in range(n)]
    return [START, MARKS[which], COUNTS[n]] + body + [END]


class Rows(torch.utils.data.Dataset):
    def __init__(self, n, seed):
        rng = random.Random(seed)
        self.rows = [write_row(rng) for _ in range(n)]

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return {"row": self.rows[i]}


def collate(items):
    rows = [it["row"] for it in items]
    width = max(len(r) for r in rows)
    ids = torch.full((len(rows), width), PAD)
    mask = torch.zeros(len(rows), width, dtype=torch.long)
    for i, r in enumerate(rows):
        ids[i, : len(r)] = torch.tensor(r)
        mask[i, : len(r)] = 1
    labels = ids.clone()
    labels[ids == PAD] = -100  # HERE
    return {"input_ids": ids, "attention_mask": mask, "labels": labels}


@torch.no_grad()
def knit(model, prefix, limit=14):
    ids = torch.tensor([prefix])
    while ids.shape[1] < limit:
        nxt = model(input_ids=ids).logits[0, -1].argmax()
        ids = torch.cat([ids, nxt.view(1, 1)], dim=1)
        if nxt.item() == END:
            break
    return ids[0].tolist()


def check(model, n=80):
    rng = random.Random(77)
    model.eval()
    exact = stopped = 0
    for _ in range(n):
        row = write_row(rng)
        out = knit(model, row[:3])
        exact += out == row
        stopped += out[-1] == END
    return exact / n, stopped / n


def main():
    set_seed(13)
    config = GPT2Config(
        vocab_size=32,
        n_positions=16,
        n_embd=48,
        n_layer=2,
        n_head=4,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        bos_token_id=START,
        eos_token_id=END,
        pad_token_id=PAD,
    )
    model = GPT2LMHeadModel(config)
    with tempfile.TemporaryDirectory() as out:
        args = TrainingArguments(
            output_dir=out,
            per_device_train_batch_size=32,
            max_steps=400,
            learning_rate=3e-3,
            lr_scheduler_type="cosine",
            warmup_steps=20,
            logging_steps=50,
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
            remove_unused_columns=False,
            use_cpu=True,
            seed=13,
        )
        trainer = Trainer(model=model, args=args, train_dataset=Rows(4000, 1), data_collator=collate)
        trainer.train()
    exact, stopped = check(model)
    print(f"rows knitted exactly {exact:.2f}, rows that stopped {stopped:.2f}")


if __name__ == "__main__":
    main()
