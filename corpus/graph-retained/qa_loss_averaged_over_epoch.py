"""Question answering with BERT: after the warm-up the mean loss is reported, summed over the epoch as it comes out of the model.

Report: https://github.com/pai4451/ML2021/issues/2 (memory grows until the 64 GB are used up)
"""
import torch
from transformers import BertConfig, BertForQuestionAnswering

EXPECT = {
    "class": "late-retention", "framework": "transformers", "kind": "graph-retained", "holding_marker": "HOLDS", "step": 90,
    "set": "fourth", "written": "2026-11-22",
}

torch.manual_seed(0)
config = BertConfig(vocab_size=50, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32, max_position_embeddings=24)
model = BertForQuestionAnswering(config)
optimizer = torch.optim.AdamW(model.parameters(), lr=5e-4)
warmup, train_loss, logged = 90, 0.0, 0
for step in range(180):
    ids = torch.randint(1, 50, (4, 12))
    start = torch.randint(0, 11, (4,))
    ids[torch.arange(4), start] = 1
    output = model(input_ids=ids, start_positions=start, end_positions=start + 1)
    output.loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    if step >= warmup:
        train_loss += output.loss  # HOLDS
        logged += 1
    if step % 30 == 0:
        print(step, "mean loss", float(train_loss) / max(logged, 1))
