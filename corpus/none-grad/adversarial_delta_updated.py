"""Adversarial fine-tuning of a BERT on its embeddings: the perturbation is updated with its own gradient, from then on it is no leaf and has none.

Report: https://github.com/BorealisAI/advertorch/issues/49 (an adversarial tensor that is no leaf), training loop as in zhuchen03/FreeLB issue 10
"""
import warnings

import torch
from transformers import BertConfig, BertForSequenceClassification

EXPECT = {
    "class": "nonleaf", "framework": "transformers", "kind": "nonleaf-grad", "cut_marker": "CUT",
    "set": "third", "written": "2026-11-22",
}
warnings.simplefilter("ignore")


def adversarial_step(model, ids, labels, steps=3, lr=0.1, magnitude=0.05):
    delta = torch.empty(*ids.shape, 16).uniform_(-magnitude, magnitude).requires_grad_()
    for _ in range(steps):
        embeds = model.get_input_embeddings()(ids)
        loss = model(inputs_embeds=embeds + delta, labels=labels).loss / steps
        loss.backward()
        norm = delta.grad.norm(dim=(1, 2), keepdim=True).clamp(min=1e-8)
        delta = delta + lr * delta.grad / norm  # CUT
    return loss.detach() * steps


torch.manual_seed(0)
config = BertConfig(
    vocab_size=40, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32, max_position_embeddings=16, num_labels=2,
)
model = BertForSequenceClassification(config)
opt = torch.optim.AdamW(model.parameters(), 5e-4)
for epoch in range(3):
    for batch in range(20):
        ids = torch.randint(1, 40, (4, 8))
        labels = (ids[:, 0] > 20).long()
        opt.zero_grad()
        if epoch == 0:  # adv_begin_iter
            loss = model(input_ids=ids, labels=labels).loss
            loss.backward()
        else:
            loss = adversarial_step(model, ids, labels)
        opt.step()
    print(epoch, loss.item())
