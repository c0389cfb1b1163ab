"""Fit soft prompts and a head to a ready-made encoder of token phrases.

What looks suspicious: the encoder's parameters require gradients and receive them in every step, yet they are in no
optimizer and never move.
Why it is right: only the prompts, which stand before the encoder, and the head after it are to be fitted; the gradient has
to flow through the encoder to reach the prompts, and the encoder is shared with other tasks and has to stay as it is.
Report: https://github.com/BINE022/EEGPT/issues/18
"""
import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from transformers import BertConfig, BertModel, set_seed

EXPECT = {
    "framework": "transformers",
    "kind": None,
    "set": "twentythird",
    "written": "2026-11-28",
}

VOCAB, LENGTH, GROUPS = 40, 12, 4


def make_phrases(n, seed):
    rng = np.random.default_rng(seed)
    ids = rng.integers(GROUPS, VOCAB, size=(n, LENGTH))
    topic = rng.integers(GROUPS, size=n)
    for row in range(n):
        spots = rng.choice(LENGTH, size=4, replace=False)
        ids[row, spots] = GROUPS + topic[row] * 9 + rng.integers(9, size=4)
    counts = np.stack([((ids - GROUPS) // 9 == g).sum(1) for g in range(GROUPS)], axis=1)
    first_task = counts.argmax(1)
    second_task = (counts[:, 0] + counts[:, 1] > counts[:, 2] + counts[:, 3]).astype(np.int64)
    return torch.from_numpy(ids), torch.from_numpy(first_task), torch.from_numpy(second_task)


def make_encoder():
    config = BertConfig(vocab_size=VOCAB, hidden_size=48, num_hidden_layers=2, num_attention_heads=4, intermediate_size=96,
                        max_position_embeddings=32, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    return BertModel(config, add_pooling_layer=False)


class Classifier(nn.Module):
    def __init__(self, encoder, n_classes):
        super().__init__()
        self.encoder = encoder
        self.head = nn.Linear(encoder.config.hidden_size, n_classes)

    def forward(self, ids):
        return self.head(self.encoder(input_ids=ids).last_hidden_state.mean(1))


class PromptClassifier(nn.Module):
    def __init__(self, encoder, n_classes, n_prompts=6):
        super().__init__()
        self.encoder = encoder
        self.prompts = nn.Parameter(0.02 * torch.randn(n_prompts, encoder.config.hidden_size))
        self.head = nn.Linear(encoder.config.hidden_size, n_classes)

    def forward(self, ids):
        words = self.encoder.embeddings.word_embeddings(ids)
        prompts = self.prompts.expand(len(ids), -1, -1)
        states = self.encoder(inputs_embeds=torch.cat([prompts, words], dim=1)).last_hidden_state
        return self.head(states[:, :self.prompts.shape[0]].mean(1))


@torch.no_grad()
def accuracy(model, ids, labels):
    model.eval()
    result = (model(ids).argmax(-1) == labels).float().mean().item()
    model.train()
    return result


def fit(model, optimizer, train, test, epochs, title):
    loader = DataLoader(TensorDataset(*train), batch_size=64, shuffle=True)
    for epoch in range(epochs):
        total = 0.0
        for ids, labels in loader:
            loss = F.cross_entropy(model(ids), labels)
            model.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        if epoch % 2 == 1:
            print(f"{title} epoch {epoch:2d}  loss {total / len(loader):.4f}  accuracy {accuracy(model, *test):.3f}")


def main():
    set_seed(5)
    ids, topic, side = make_phrases(2400, seed=5)
    encoder = make_encoder()
    first = Classifier(encoder, GROUPS)
    fit(first, torch.optim.AdamW(first.parameters(), lr=1e-3), (ids[:2000], topic[:2000]), (ids[2000:], topic[2000:]), 6, "topic")

    before = torch.cat([p.detach().flatten() for p in encoder.parameters()])
    second = PromptClassifier(encoder, 2)
    optimizer = torch.optim.AdamW([
        {"params": [second.prompts], "lr": 2e-2},
        {"params": second.head.parameters(), "lr": 5e-3},
    ], weight_decay=0.0)
    fit(second, optimizer, (ids[:2000], side[:2000]), (ids[2000:], side[2000:]), 10, "side")
    after = torch.cat([p.detach().flatten() for p in encoder.parameters()])
    print(f"encoder unchanged: {torch.equal(before, after)}  topic accuracy still {accuracy(first, ids[2000:], topic[2000:]):.3f}")


if __name__ == "__main__":
    main()
