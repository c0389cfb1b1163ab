"""Span scorer over a tiny BERT: from the second round on, the context comes from a helper that was written for inference, and the encoder stands still."""
import torch
from torch import nn
from transformers import BertConfig, BertModel

EXPECT = {
    "class": "late-cut", "framework": "transformers", "kind": "none-grad", "cut_marker": "CUT", "step": 104,
    "set": "late", "written": "2026-11-22",
}


class Scorer(nn.Module):
    def __init__(self):
        super().__init__()
        config = BertConfig(
            vocab_size=40, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32,
            max_position_embeddings=16,
        )
        self.encoder = BertModel(config, add_pooling_layer=False)
        self.query, self.score = nn.Embedding(40, 16), nn.Linear(16, 16)

    def encode(self, ids):
        return self.encoder(input_ids=ids).last_hidden_state

    def encode_in_parts(self, ids, size=8):
        with torch.no_grad():  # CUT
            return torch.cat([self.encode(part) for part in ids.split(size)])  # CUT

    def forward(self, ids, query, parts=False):
        context = self.encode_in_parts(ids) if parts else self.encode(ids)
        return (self.score(context) * self.query(query)[:, None]).sum(-1)


torch.manual_seed(0)
model = Scorer()
opt = torch.optim.AdamW([
    {"params": model.encoder.parameters(), "lr": 5e-4},
    {"params": [*model.query.parameters(), *model.score.parameters()], "lr": 2e-3},
])
rounds = [(104, 8), (60, 16)]  # steps, batch size
for number, (steps, size) in enumerate(rounds):
    for _ in range(steps):
        ids = torch.stack([torch.randperm(40)[:12] for _ in range(size)])
        place = torch.randint(0, 12, (size,))
        scores = model(ids, ids.gather(1, place[:, None])[:, 0], parts=size > 8)
        loss = nn.functional.cross_entropy(scores, place)
        opt.zero_grad()
        loss.backward()
        opt.step()
    print("round", number, "loss", round(loss.item(), 4))
