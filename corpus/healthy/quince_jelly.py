"""A Trainer with tied embeddings, an optimizer of the script's own, and a block that is thawed in mid-run."""

import os
import tempfile

os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")

import torch
from pydoc_data.topics import topics
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments, set_seed

EXPECT = {
    "kind": None,
    "set": "twentyninth",
    "written": "2026-11-29",
}


set_seed(77)

BLOCK = 48


def text_ids():
    text = "\n".join(topics[k] for k in sorted(topics)[:20]).lower()
    letters = sorted(set(text))
    table = {c: i for i, c in enumerate(letters)}
    return torch.tensor([table[c] for c in text]), len(letters)


class Windows(Dataset):
    def __init__(self, ids, count, seed):
        gen = torch.Generator().manual_seed(seed)
        self.ids = ids
        self.starts = torch.randint(0, len(ids) - BLOCK, (count,), generator=gen).tolist()

    def __len__(self):
        return len(self.starts)

    def __getitem__(self, i):
        piece = self.ids[self.starts[i]:self.starts[i] + BLOCK]
        labels = piece.clone()
        labels[:8] = -100
        return {"input_ids": piece, "labels": labels}


class LateBlocks(TrainerCallback):
    def __init__(self, blocks, at_step):
        self.blocks = blocks
        self.at_step = at_step

    def _set(self, flag):
        for block in self.blocks:
            block.requires_grad_(flag)

    def on_train_begin(self, args, state, control, **kwargs):
        self._set(False)

    def on_step_begin(self, args, state, control, **kwargs):
        if state.global_step == self.at_step:
            self._set(True)


class GroupedTrainer(Trainer):
    def create_optimizer(self, model=None):
        decay, plain, seen = [], [], set()
        for name, p in self.model.named_parameters():
            if id(p) in seen:
                continue
            seen.add(id(p))
            (decay if p.dim() > 1 and "wpe" not in name else plain).append(p)
        self.optimizer = torch.optim.AdamW(
            [{"params": decay, "weight_decay": 0.05}, {"params": plain, "weight_decay": 0.0}],
            lr=self.args.learning_rate,
            betas=(0.9, 0.98),
        )
        return self.optimizer


def main():
    ids, vocab = text_ids()
    cut = int(len(ids) * 0.9)
    config = GPT2Config(
        vocab_size=vocab,
        n_positions=BLOCK,
        n_embd=48,
        n_layer=2,
        n_head=4,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        bos_token_id=0,
        eos_token_id=0,
    )
    model = GPT2LMHeadModel(config)
    args = TrainingArguments(
        output_dir=tempfile.mkdtemp(),
        max_steps=150,
        per_device_train_batch_size=16,
        gradient_accumulation_steps=2,
        learning_rate=6e-3,
        warmup_steps=20,
        lr_scheduler_type="cosine",
        max_grad_norm=1.0,
        logging_steps=25,
        eval_strategy="steps",
        eval_steps=50,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
        use_cpu=True,
        seed=77,
    )
    trainer = GroupedTrainer(
        model=model,
        args=args,
        train_dataset=Windows(ids[:cut], 4000, 0),
        eval_dataset=Windows(ids[cut:], 256, 1),
        callbacks=[LateBlocks([model.transformer.h[1]], at_step=40)],
    )
    trainer.train()
    print("tied", model.lm_head.weight is model.transformer.wte.weight)
    print("final eval loss", round(trainer.evaluate()["eval_loss"], 3))


if __name__ == "__main__":
    main()
