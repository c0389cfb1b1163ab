"""Orders of tea are written by a small GPT-2 whose padding is its end mark: the collator blanks all labels that are
padding, so it never learns to end an order.

After huggingface/transformers#23530 and huggingface/trl#976.
"""

import random
import tempfile

import torch
from torch.nn.utils.rnn import pad_sequence
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments, set_seed

EXPECT = {
    "class": "end mark is padding",
    "kind": "end-never-learned",
    "framework": "transformers",
    "line": ("cause", "HERE"),
    "set": "twentyeighth",
    "written": "2026-11-29",
}

set_seed(11)
SIZES = ["one", "two", "three", "four"]
DRINKS = ["mint", "fennel", "black", "green", "apple", "rosehip"]
EXTRAS = ["honey", "milk", "lemon", "ginger"]
PLACES = ["window", "counter", "garden", "stairs"]
WORDS = ["<end>", "please", "cups", "of", "tea", "with", "and", "no", "for", "the", "table", "at"]
WORDS += SIZES + DRINKS + EXTRAS + PLACES
INDEX = {w: i for i, w in enumerate(WORDS)}
EOS = INDEX["<end>"]
PAD = EOS
MAX_LEN = 24


def write_order(rng):
    words = ["please", rng.choice(SIZES), "cups", "of", rng.choice(DRINKS), "tea"]
    extras = rng.sample(EXTRAS, rng.randint(0, 2))
    if extras:
        words += ["with", extras[0]]
    if len(extras) == 2:
        words += ["and", extras[1]]
    if rng.random() < 0.6:
        words += ["for", "the", "table", "at", "the", rng.choice(PLACES)]
    return words + ["<end>"]


class Orders(torch.utils.data.Dataset):
    def __init__(self, count, seed):
        rng = random.Random(seed)
        self.rows = [[INDEX[w] for w in write_order(rng)] for _ in range(count)]

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return {"input_ids": self.rows[i]}


def collate(rows):
    ids = [torch.tensor(r["input_ids"]) for r in rows]
    mask = pad_sequence([torch.ones_like(x) for x in ids], batch_first=True)
    ids = pad_sequence(ids, batch_first=True, padding_value=PAD)
    labels = ids.clone()
    labels[labels == PAD] = -100  # HERE
    return {"input_ids": ids, "attention_mask": mask, "labels": labels}


@torch.no_grad()
def finish_rate(model, count=80):
    model.eval()
    ended, lengths = 0, []
    for k in range(count):
        ids = torch.tensor([[INDEX["please"], INDEX[SIZES[k % 4]]]])
        for _ in range(MAX_LEN):
            logits = model(input_ids=ids).logits[0, -1]
            nxt = torch.multinomial(logits.softmax(-1), 1)
            ids = torch.cat([ids, nxt.view(1, 1)], dim=1)
            if nxt.item() == EOS:
                ended += 1
                break
        lengths.append(ids.shape[1])
    return ended / count, sum(lengths) / count, ids[0].tolist()


def main():
    config = GPT2Config(
        vocab_size=len(WORDS), n_positions=64, n_embd=48, n_layer=2, n_head=4,
        bos_token_id=EOS, eos_token_id=EOS, pad_token_id=PAD,
        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
    )
    model = GPT2LMHeadModel(config)
    args = TrainingArguments(
        output_dir=tempfile.mkdtemp(), per_device_train_batch_size=32, max_steps=240,
        learning_rate=2e-3, warmup_steps=20, logging_steps=40, save_strategy="no",
        report_to=[], use_cpu=True, disable_tqdm=True, seed=11,
    )
    trainer = Trainer(model=model, args=args, train_dataset=Orders(3000, 1), data_collator=collate)
    trainer.train()
    rate, length, last = finish_rate(model)
    print(f"finished orders {rate:.2f}  mean length {length:.1f}")
    print(" ".join(WORDS[i] for i in last))


if __name__ == "__main__":
    main()
