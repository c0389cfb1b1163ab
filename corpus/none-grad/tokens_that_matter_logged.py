"""Classifier on a tiny BERT with a log of the tokens that matter: every twenty steps the batch goes in as embeddings, whose gradient is read after backward; they are the output of a layer and keep none.

Report: https://github.com/meta-pytorch/captum/issues/491 (.grad of a tensor that is not a leaf is read in Saliency; the input there is an embedding's output)
"""
import warnings

import torch
from torch import nn
from transformers import BertConfig, BertForSequenceClassification

EXPECT = {
    "class": "nonleaf", "framework": "transformers", "kind": "nonleaf-grad", "cut_marker": "CUT", "step": 20,
    "set": "eighth", "written": "2026-11-22",
}
warnings.simplefilter("ignore")
KEYS = torch.tensor([7, 11, 13])


def reviews(n=16, length=10):
    ids = torch.randint(14, 40, (n, length))
    label = torch.randint(0, 2, (n,))
    place = torch.randint(1, length, (n,))
    ids[torch.arange(n), place] = torch.where(label == 1, KEYS[torch.randint(0, 3, (n,))], ids[torch.arange(n), place])
    ids[:, 0] = 1
    return ids, label


class SaliencyLog:
    def __init__(self, model, every):
        self.model, self.every, self.rows = model, every, []
        self.embeds = None

    def wants(self, step):
        return step > 0 and step % self.every == 0

    def inputs(self, ids):
        self.embeds = self.model.get_input_embeddings()(ids)  # CUT
        return {"inputs_embeds": self.embeds}

    def record(self, ids):
        saliency = self.embeds.grad
        if saliency is None:
            self.rows.append(None)
            return
        top = saliency.norm(dim=-1).argmax(1)
        self.rows.append(torch.isin(ids[torch.arange(len(ids)), top], KEYS).float().mean().item())


torch.manual_seed(0)
config = BertConfig(vocab_size=40, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32, max_position_embeddings=16)
model = BertForSequenceClassification(config)
log = SaliencyLog(model, every=20)
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
for step in range(90):
    ids, label = reviews()
    explained = log.wants(step)
    inputs = log.inputs(ids) if explained else {"input_ids": ids}
    out = model(**inputs, labels=label)
    optimizer.zero_grad()
    out.loss.backward()
    if explained:
        log.record(ids)
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    if step % 15 == 0:
        print(step, out.loss.item(), log.rows)
