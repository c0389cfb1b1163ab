"""Relation extraction on a small BERT with a guard against outliers: the batches that fail are collected as exceptions, whose tracebacks hold the frames, whose locals hold the graphs.

Report: https://github.com/pytorch/pytorch/issues/10348 (memory leak when exceptions are raised and kept; also huggingface/trl pull 5776)
"""
import torch
from torch import nn
from transformers import BertConfig, BertModel

EXPECT = {
    "class": "retention", "framework": "transformers", "kind": "graph-retained", "holding_marker": "HOLDS", "step": 60,
    "set": "fifth", "written": "2026-11-22",
}


class LossSpike(RuntimeError):
    pass


class Extractor(nn.Module):
    def __init__(self, relations=5):
        super().__init__()
        config = BertConfig(vocab_size=40, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32, max_position_embeddings=16)
        self.bert, self.head = BertModel(config, add_pooling_layer=False), nn.Linear(32, relations)

    def forward(self, ids, first, second):
        h = self.bert(input_ids=ids).last_hidden_state
        rows = torch.arange(len(ids))
        return self.head(torch.cat([h[rows, first], h[rows, second]], 1))


class Trainer:
    def __init__(self, model, limit):
        self.model, self.limit, self.failures = model, limit, []
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)

    def training_step(self, step, ids, first, second, relation):
        logits = self.model(ids, first, second)
        loss = nn.functional.cross_entropy(logits, relation)
        if step >= 50 and loss > self.limit:
            raise LossSpike(f"loss {loss.item():.2f}")
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()

    def fit(self, batches):
        for step, batch in enumerate(batches):
            try:
                value = self.training_step(step, *batch)
            except LossSpike as error:
                self.failures.append((step, error))  # HOLDS
                continue
            if step % 20 == 0:
                print(step, value, len(self.failures))


def batches(n):
    for step in range(n):
        ids = torch.randint(1, 40, (8, 10))
        relation = ids[:, 2] % 5
        if step >= 60 and step % 2 == 0:
            ids, relation = ids * 0 + 1, torch.full((8,), 4)  # a shard with broken annotation
            relation[::2] = 0
        yield ids, torch.full((8,), 2), torch.full((8,), 5), relation


torch.manual_seed(0)
trainer = Trainer(Extractor(), limit=1.6)
trainer.fit(batches(140))
print("failed", len(trainer.failures), trainer.failures[-1])
