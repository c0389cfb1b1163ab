"""Bi-encoder on a tiny BERT: when training goes on with mined negatives, the triples go through the convenient encode(), which was written for inference and works without gradients.

Report: https://github.com/huggingface/sentence-transformers/issues/274 (encode() always runs under no_grad; for training one has to call forward)
"""
import torch
from torch import nn
from transformers import BertConfig, BertModel

EXPECT = {
    "class": "grad-mode", "framework": "transformers", "kind": "grad-mode-disabled", "cut_marker": "CUT", "step": 40,
    "set": "eighth", "written": "2026-11-22",
}


class SentenceEncoder(nn.Module):
    def __init__(self, words=50, dim=16):
        super().__init__()
        config = BertConfig(vocab_size=words, hidden_size=dim, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32, max_position_embeddings=24)
        self.bert = BertModel(config, add_pooling_layer=False)

    def forward(self, features):
        hidden = self.bert(**features).last_hidden_state
        mask = features["attention_mask"].unsqueeze(-1).float()
        return nn.functional.normalize((hidden * mask).sum(1) / mask.sum(1), dim=-1)

    def tokenize(self, sentences):
        length = max(len(s) for s in sentences)
        ids = torch.tensor([s + [0] * (length - len(s)) for s in sentences])
        return {"input_ids": ids, "attention_mask": (ids > 0).long()}

    def encode(self, sentences, batch_size=32):
        training = self.training
        self.eval()
        found = []
        with torch.no_grad():  # CUT
            for start in range(0, len(sentences), batch_size):
                found.append(self(self.tokenize(sentences[start : start + batch_size])))
        self.train(training)
        return torch.cat(found)


def topic_sentence(topic):
    length = int(torch.randint(4, 9, ()))
    return (1 + topic * 7 + torch.randint(0, 7, (length,))).tolist()


def mine(encoder, anchors, topics, pool, pool_topics):
    similarity = encoder.encode(anchors) @ encoder.encode(pool).T
    same = topics[:, None] == pool_topics[None]
    return [pool[i] for i in similarity.masked_fill(same, -2).argmax(1).tolist()]


def in_batch_loss(anchor, positive):
    logits = anchor @ positive.T / 0.1
    return nn.functional.cross_entropy(logits, torch.arange(len(anchor)))


def triplet_loss(anchor, positive, negative, margin=0.3):
    return torch.relu(margin - (anchor * positive).sum(1) + (anchor * negative).sum(1)).mean()


torch.manual_seed(0)
encoder = SentenceEncoder()
optimizer = torch.optim.AdamW(encoder.parameters(), lr=1e-3)
pool_topics = torch.arange(28) % 7
pool = [topic_sentence(int(t)) for t in pool_topics]
for step in range(80):
    topics = torch.randperm(7)[:6]
    anchors, positives = ([topic_sentence(int(t)) for t in topics] for _ in range(2))
    if step < 40:
        loss = in_batch_loss(encoder(encoder.tokenize(anchors)), encoder(encoder.tokenize(positives)))
    else:
        negatives = mine(encoder, anchors, topics, pool, pool_topics)
        loss = triplet_loss(*(encoder.encode(s) for s in (anchors, positives, negatives)))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 10 == 0:
        print(step, loss.item())
