"""Fine-tuning of a small causal language model on helpdesk dialogues, loss on the reply only.

Report: https://github.com/karpathy/nanochat/pull/623
"""
import random

import torch
from torch.nn import functional as F
from torch.utils.data import Dataset
from transformers import LlamaConfig, LlamaForCausalLM, PrinterCallback, Trainer, TrainerCallback, TrainingArguments

EXPECT = {
    "kind": "nonfinite-forward",
    "line": ("cause", "HERE"),
    "framework": "transformers",
    "late": True,
    "plain": "the trainer's log looks fine at first, later the losses it shows stop meaning anything, in the end the held-out loss is nan and accuracy is zero",
    "set": "twentysixth",
    "written": "2026-11-29",
}

VOCAB, PAD, SEP, END = 48, 0, 1, 2
LONGEST, STEPS, BATCH = 24, 220, 4


def make_dialogue(rng):
    topic = rng.randrange(3, 13)
    length = rng.randint(24, 30) if rng.random() < 0.36 else rng.randint(6, 14)
    question = [topic] + [rng.randrange(13, VOCAB) for _ in range(length)]
    reply = [topic + 10, topic + 20, question[1], topic + 15, END]
    return question + [SEP], reply


def encode(question, reply):
    tokens = (question + reply)[:LONGEST]  # HERE
    labels = ([-100] * len(question) + reply)[:LONGEST]
    return {"input_ids": tokens, "labels": labels}


class Dialogues(Dataset):
    def __init__(self, count, seed):
        rng = random.Random(seed)
        self.rows = [encode(*make_dialogue(rng)) for _ in range(count)]

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return self.rows[index]


def collate(rows):
    width = max(len(row["input_ids"]) for row in rows)
    tokens = torch.full((len(rows), width), PAD)
    labels = torch.full((len(rows), width), -100)
    mask = torch.zeros(len(rows), width, dtype=torch.long)
    for index, row in enumerate(rows):
        size = len(row["input_ids"])
        tokens[index, :size] = torch.tensor(row["input_ids"])
        labels[index, :size] = torch.tensor(row["labels"])
        mask[index, :size] = 1
    return {"input_ids": tokens, "labels": labels, "attention_mask": mask}


class ReplyTrainer(Trainer):
    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        output = model(input_ids=inputs["input_ids"], attention_mask=inputs["attention_mask"])
        logits, goal = output.logits[:, :-1], inputs["labels"][:, 1:]
        weight = (goal != -100).float() * torch.where(goal == END, 0.5, 1.0)
        each = F.cross_entropy(logits.transpose(1, 2), goal.clamp(min=0), reduction="none")
        loss = (each * weight).sum() / weight.sum()  # HERE
        return (loss, output) if return_outputs else loss


class Show(TrainerCallback):
    def on_log(self, args, state, control, logs=None, **kwargs):
        if logs and "loss" in logs:
            print(f"step {state.global_step:4d}  loss {float(logs['loss']):.4f}")


@torch.no_grad()
def reply_accuracy(model, rows):
    model.eval()
    batch = collate(rows)
    output = model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"], labels=batch["labels"])
    guess, goal = output.logits[:, :-1].argmax(-1), batch["labels"][:, 1:]
    known = goal != -100
    return output.loss.item(), (guess[known] == goal[known]).float().mean().item()


def main():
    torch.manual_seed(0)
    train, check = Dialogues(2400, 21), Dialogues(300, 22)
    config = LlamaConfig(
        vocab_size=VOCAB, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=4, max_position_embeddings=64, pad_token_id=PAD, bos_token_id=SEP, eos_token_id=END,
    )
    model = LlamaForCausalLM(config)
    args = TrainingArguments(
        output_dir="/tmp/helpdesk_replies", max_steps=STEPS, per_device_train_batch_size=BATCH, learning_rate=3e-3,
        logging_steps=20, save_strategy="no", report_to=[], disable_tqdm=True, seed=10, use_cpu=True,
    )
    trainer = ReplyTrainer(model=model, args=args, train_dataset=train, data_collator=collate, callbacks=[Show()])
    trainer.remove_callback(PrinterCallback)
    trainer.train()
    loss, accuracy = reply_accuracy(model, [row for row in check.rows if any(x != -100 for x in row["labels"])])
    print(f"held-out reply loss {loss:.4f}  token accuracy {accuracy:.3f}")


if __name__ == "__main__":
    main()
