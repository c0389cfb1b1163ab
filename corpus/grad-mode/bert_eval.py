"""Tiny BERT classifier; a validation round fails, the failure is logged, training goes on.

Source: https://github.com/Lightning-AI/pytorch-lightning/issues/2180
"""
import logging

import torch
from transformers import BertConfig, BertForSequenceClassification

EXPECT = {
    "class": "d", "kind": "grad-mode-disabled", "cut_marker": "CUT", "step": 160,
    "plain": {"outcome": "raises", "exception": "RuntimeError", "match": "does not require grad"},
    "set": "twelfth", "written": "2026-11-25",
}
log = logging.getLogger("train")


def make_batch(g, n=16, length=12, vocab=64):
    ids = torch.randint(5, vocab, (n, length), generator=g)
    labels = (ids[:, 0] % 2).long()
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": labels}


def validation_shards(seed=5):
    g = torch.Generator().manual_seed(seed)
    shards = [make_batch(g, 32) for _ in range(8)]
    shards[3]["input_ids"][7, -1] = 64
    return shards


class Evaluator:
    def __init__(self, model, shards):
        self.model, self.shards, self.rounds = model, shards, 0

    def run(self):
        self.model.eval()
        torch.set_grad_enabled(False)  # CUT
        batch = self.shards[self.rounds % len(self.shards)]
        self.rounds += 1
        out = self.model(**batch)
        acc = (out.logits.argmax(-1) == batch["labels"]).float().mean().item()
        torch.set_grad_enabled(True)
        return {"loss": out.loss.item(), "acc": acc}


class Trainer:
    def __init__(self, model, steps=240, eval_every=40, lr=2e-3):
        self.model, self.steps, self.eval_every = model, steps, eval_every
        self.opt = torch.optim.AdamW(model.parameters(), lr=lr)
        self.sched = torch.optim.lr_scheduler.LinearLR(self.opt, 1.0, 0.1, total_iters=steps)
        self.evaluator = Evaluator(model, validation_shards())

    def fit(self):
        g = torch.Generator().manual_seed(0)
        for step in range(self.steps):
            self.model.train()
            loss = self.model(**make_batch(g)).loss
            self.opt.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.opt.step()
            self.sched.step()
            if (step + 1) % self.eval_every == 0:
                try:
                    log.info("step %d train %.3f val %s", step, loss.item(), self.evaluator.run())
                except Exception as e:
                    log.warning("validation at step %d skipped: %s", step, e)


def main():
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    torch.manual_seed(0)
    config = BertConfig(vocab_size=64, hidden_size=32, num_hidden_layers=2, num_attention_heads=2,
                        intermediate_size=64, max_position_embeddings=16, num_labels=2)
    Trainer(BertForSequenceClassification(config)).fit()


if __name__ == "__main__":
    main()
