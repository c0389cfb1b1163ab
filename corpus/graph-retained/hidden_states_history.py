"""A probe keeps the last hidden states of each training batch of a BERT for an analysis at the end.

Report: https://github.com/Lightning-AI/pytorch-lightning/issues/4098 (list state that holds tensors with their graph)
"""
import torch
from transformers import BertConfig, BertForSequenceClassification

EXPECT = {
    "class": "retention", "framework": "transformers", "kind": "graph-retained", "holding_marker": "HOLDS",
    "set": "first", "written": "2026-11-22",
}


class ProbeCallback:
    def __init__(self):
        self.history = {"pooled": []}

    def on_step_end(self, outputs):
        self.history["pooled"].append(outputs.hidden_states[-1][:, 0])  # HOLDS


torch.manual_seed(0)
config = BertConfig(vocab_size=40, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32, max_position_embeddings=16)
model = BertForSequenceClassification(config)
opt = torch.optim.AdamW(model.parameters(), 1e-3)
probe = ProbeCallback()
for step in range(30):
    ids = torch.randint(0, 40, (4, 8))
    out = model(input_ids=ids, labels=ids[:, 0] % 2, output_hidden_states=True)
    opt.zero_grad()
    out.loss.backward()
    opt.step()
    if step >= 8:
        probe.on_step_end(out)
print("reproduced", probe.history["pooled"][0].grad_fn is not None)
