"""Tiny BERT whose owner clears the embedding of the padding token before each forward, by a write to the weight."""
import torch
from transformers import BertConfig, BertForSequenceClassification

EXPECT = {
    "class": "refused", "framework": "transformers", "kind": "forward-error", "line": ["cause", "REFUSED"],
    "set": "ledger", "written": "2026-11-27",
}


def clear(weight, row):
    weight[row] = 0.0  # REFUSED


torch.manual_seed(0)
config = BertConfig(
    vocab_size=50, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16,
    max_position_embeddings=16, num_labels=2,
)
model = BertForSequenceClassification(config)
optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
for step in range(20):
    ids = torch.randint(0, 50, (8, 8))
    loss = model(input_ids=ids, labels=(ids.sum(1) % 2)).loss
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step == 8:
        clear(model.bert.embeddings.word_embeddings.weight, 0)
