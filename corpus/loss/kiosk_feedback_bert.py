"""A BERT reads feedback of customers, and gets an attention mask that is 1 for the padding.

Written after the same reports as helpdesk_tickets: the mask of transformers is 1 for tokens, that of torch is True for
the padding.
"""

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from transformers import BertConfig, BertModel

EXPECT = {
    "class": "inverted-mask", "kind": "mask-inverted", "line": ("cause", "HERE"), "set": "ledger", "written": "2026-11-29",
}
PAD, CLS, WORDS = 0, 1, 60


def collate(texts):
    ids = pad_sequence(texts, batch_first=True, padding_value=PAD)
    return ids if (ids == PAD).any(1).all() else F.pad(ids, (0, 1), value=PAD)


class Feedback(nn.Module):
    def __init__(self):
        super().__init__()
        config = BertConfig(
            vocab_size=WORDS, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64,
            max_position_embeddings=40,
        )
        self.bert, self.head = BertModel(config, add_pooling_layer=False), nn.Linear(32, 2)

    def forward(self, ids):
        attention_mask = (ids == PAD).long()  # HERE
        hidden = self.bert(input_ids=ids, attention_mask=attention_mask).last_hidden_state
        return self.head(hidden[:, 0])


def batch(generator, size=16):
    texts, labels = [], []
    for _ in range(size):
        words = torch.randint(2, WORDS, (int(torch.randint(5, 20, (1,), generator=generator)),), generator=generator)
        texts.append(torch.cat([torch.tensor([CLS]), words]))
        labels.append(int((words < 12).sum() > 1))
    return collate(texts), torch.tensor(labels)


def main():
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(1)
    model = Feedback()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for _ in range(60):
        ids, labels = batch(generator)
        loss = F.cross_entropy(model(ids), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
