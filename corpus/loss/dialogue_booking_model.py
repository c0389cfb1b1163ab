"""A small GPT-2 on templated booking dialogues, trained with the Trainer.

Report: https://github.com/huggingface/transformers/pull/44642
"""
import random
import tempfile

import torch
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments, set_seed

EXPECT = {
    "kind": "targets-misaligned",
    "line": ("shifted", "SHIFT"),
    "framework": "transformers",
    "plain": "the loss falls, but next-token accuracy on held-out dialogues stays near nothing and generated text skips words",
    "set": "twentythird",
    "written": "2026-11-28",
}

PLACES = "bistro tavern diner pizzeria bakery teahouse".split()
COUNTS = "one two three four five six".split()
HOURS = "noon five six seven eight nine".split()
NAMES = "anna boris carla dmitri elena felix".split()
PAD, EOS = "<pad>", "<eos>"


def make_dialogue(rng):
    place, count, hour, name = (rng.choice(group) for group in (PLACES, COUNTS, HOURS, NAMES))
    if rng.random() < 0.5:
        text = (f"user : hello i would like a table at the {place} for {count} at {hour} bot : which name please "
                f"user : {name} bot : thank you {name} your table at the {place} for {count} at {hour} is booked {EOS}")
    else:
        text = (f"user : please cancel the table for {name} bot : the one at the {place} at {hour} "
                f"user : yes bot : done {name} the {place} at {hour} was cancelled {EOS}")
    return text.split()


class Vocabulary:
    def __init__(self, dialogues):
        words = sorted({w for d in dialogues for w in d} - {EOS})
        self.words = [PAD, EOS] + words
        self.index = {w: i for i, w in enumerate(self.words)}

    def encode(self, words):
        return torch.tensor([self.index[w] for w in words])


class Dialogues(Dataset):
    def __init__(self, dialogues, vocabulary):
        self.items = [vocabulary.encode(d) for d in dialogues]

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        return {"ids": self.items[i]}


def collate(rows):
    ids = torch.nn.utils.rnn.pad_sequence([r["ids"] for r in rows], batch_first=True, padding_value=0)
    mask = torch.nn.utils.rnn.pad_sequence([torch.ones_like(r["ids"]) for r in rows], batch_first=True)
    targets = ids.masked_fill(mask == 0, -100)
    return {
        "input_ids": ids[:, :-1],
        "attention_mask": mask[:, :-1],
        "labels": targets[:, 1:],  # SHIFT
    }


@torch.no_grad()
def next_word_accuracy(model, dataset):
    model.eval()
    right = total = 0
    for row in dataset:
        ids = row["ids"].unsqueeze(0)
        guess = model(input_ids=ids).logits[:, :-1].argmax(-1)
        right += (guess == ids[:, 1:]).sum().item()
        total += guess.numel()
    return right / total


@torch.no_grad()
def complete(model, vocabulary, words, length=14):
    model.eval()
    ids = vocabulary.encode(words).unsqueeze(0)
    for _ in range(length):
        nxt = model(input_ids=ids).logits[:, -1].argmax(-1, keepdim=True)
        ids = torch.cat([ids, nxt], dim=1)
    return " ".join(vocabulary.words[i] for i in ids[0].tolist())


def main():
    set_seed(11)
    rng = random.Random(11)
    dialogues = [make_dialogue(rng) for _ in range(1300)]
    vocabulary = Vocabulary(dialogues)
    train, held_out = Dialogues(dialogues[:1200], vocabulary), Dialogues(dialogues[1200:], vocabulary)
    config = GPT2Config(vocab_size=len(vocabulary.words), n_positions=64, n_embd=64, n_layer=2, n_head=4,
                        bos_token_id=1, eos_token_id=1, pad_token_id=0)
    model = GPT2LMHeadModel(config)
    with tempfile.TemporaryDirectory() as folder:
        args = TrainingArguments(output_dir=folder, per_device_train_batch_size=24, num_train_epochs=5, learning_rate=2e-3,
                                 warmup_steps=20, logging_steps=50, save_strategy="no", report_to=[], disable_tqdm=True,
                                 remove_unused_columns=False, use_cpu=True, seed=11)
        Trainer(model=model, args=args, train_dataset=train, data_collator=collate).train()
    print(f"held-out next-word accuracy: {next_word_accuracy(model, held_out):.3f}")
    print(complete(model, vocabulary, "user : hello i would".split()))


if __name__ == "__main__":
    main()
