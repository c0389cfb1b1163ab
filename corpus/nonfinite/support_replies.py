"""Fine-tuning a small causal language model on support tickets: the reply is learned, the question is masked out.

Follows the public report https://github.com/meta-llama/llama-cookbook/issues/133
"""
import numpy as np
import torch
from torch.nn import functional as F
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, get_linear_schedule_with_warmup, set_seed

EXPECT = {
    "kind": "nonfinite-forward",
    "line": ("cause", "cause"),
    "plain": "the loss falls well and then is nan from some step on, and the replies of the model are worthless",
    "set": "twentyfourth",
    "written": "2026-11-28",
}

VOCAB, MAX_LEN, SEP, EOS = 60, 32, 1, 2


def make_ticket(rng):
    topic = int(rng.integers(0, 10))
    length = int(rng.integers(6, 14))
    if rng.random() < 0.012:
        length = int(rng.integers(35, 50))
    question = rng.integers(20, VOCAB, size=length)
    question[rng.integers(0, min(length, 6))] = 3 + topic
    reply = np.array([3 + topic, 3 + (topic + 3) % 10, 3 + (topic + 5) % 10, EOS])
    return question.tolist(), reply.tolist()


def encode(question, reply):
    ids = question + [SEP] + reply
    labels = [-100] * (len(question) + 1) + reply
    return {"input_ids": ids[:MAX_LEN], "labels": labels[:MAX_LEN]}  # <-- cause


class Tickets(Dataset):
    def __init__(self, n, seed):
        rng = np.random.default_rng(seed)
        self.rows = [encode(*make_ticket(rng)) for _ in range(n)]

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return self.rows[i]


def collate(rows):
    width = max(len(r["input_ids"]) for r in rows)
    ids = torch.zeros(len(rows), width, dtype=torch.long)
    mask = torch.zeros(len(rows), width, dtype=torch.long)
    labels = torch.full((len(rows), width), -100, dtype=torch.long)
    for i, r in enumerate(rows):
        n = len(r["input_ids"])
        ids[i, :n] = torch.tensor(r["input_ids"])
        labels[i, :n] = torch.tensor(r["labels"])
        mask[i, :n] = 1
    return {"input_ids": ids, "attention_mask": mask, "labels": labels}


def reply_loss(model, batch):
    logits = model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).logits[:, :-1]
    gold = batch["labels"][:, 1:]
    keep = (gold != -100).float()
    each = F.cross_entropy(logits.transpose(1, 2), gold.clamp_min(0), reduction="none")
    return (each * keep).sum() / keep.sum()  # <-- cause


def buckets(tickets, size, rng):
    order = sorted(range(len(tickets)), key=lambda i: len(tickets[i]["input_ids"]))
    groups = [order[i:i + size] for i in range(0, len(order), size)]
    rng.shuffle(groups)
    return [collate([tickets[i] for i in group]) for group in groups]


@torch.no_grad()
def reply_accuracy(model, tickets):
    model.eval()
    hit = total = 0
    for row in tickets.rows:
        batch = collate([row])
        logits = model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).logits
        guess, gold = logits[:, :-1].argmax(-1), batch["labels"][:, 1:]
        keep = gold != -100
        hit += int((guess[keep] == gold[keep]).sum())
        total += int(keep.sum())
    return hit / total


def main():
    set_seed(5)
    torch.set_num_threads(1)
    config = GPT2Config(vocab_size=VOCAB, n_positions=MAX_LEN, n_embd=48, n_layer=2, n_head=4, n_inner=96,
                        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=EOS, eos_token_id=EOS)
    model = GPT2LMHeadModel(config)
    train, held_out = Tickets(640, seed=1), Tickets(60, seed=2)
    rng = np.random.default_rng(16)
    epochs, size = 3, 4
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.01)
    total = epochs * (len(train) // size)
    schedule = get_linear_schedule_with_warmup(optimizer, num_warmup_steps=20, num_training_steps=total)
    print(f"before: reply accuracy {reply_accuracy(model, held_out):.3f}")
    step, recent = 0, []
    for _ in range(epochs):
        model.train()
        for batch in buckets(train, size, rng):
            loss = reply_loss(model, batch)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
            recent.append(loss.item())
            step += 1
            if step % 25 == 0:
                print(f"step {step}: loss {sum(recent) / len(recent):.4f}")
                recent = []
    print(f"after: reply accuracy {reply_accuracy(model, held_out):.3f}")


if __name__ == "__main__":
    main()
