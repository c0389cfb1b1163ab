"""A gradient hook zeroes the rows of the old vocabulary, but AdamW's weight decay still shrinks those rows at every
step, so the pretrained word vectors fade while they are thought frozen.

Report: huggingface/diffusers issues #1009 and #1176 (textual inversion: frozen token embeddings decay)
"""
import torch
import torch.nn.functional as F
from torch import nn

EXPECT = {
    "kind": "frozen-parameter-moves",
    "line": ("optimizer", "HERE"),
    "plain": "old words' loss rises from 0.227 to 1.536, mean norm from 1.224 to 0.111; both unchanged with weight_decay=0",
    "set": "eighteen_classes",
    "written": "2026-11-29",
}


OLD, NEW, DIM, TOPICS = 200, 12, 24, 6


def world(gen):
    topic_vec = F.normalize(torch.randn(TOPICS, DIM, generator=gen), dim=1)
    old_topic = torch.randint(0, TOPICS, (OLD,), generator=gen)
    old_vec = topic_vec[old_topic] + 0.15 * torch.randn(OLD, DIM, generator=gen)
    new_topic = torch.arange(NEW) % TOPICS
    return topic_vec, old_topic, old_vec, new_topic


def phrases(n, old_topic, new_topic, gen, rare):
    lo, hi = (OLD // 2, OLD) if rare else (0, OLD // 2)
    topic = torch.randint(0, TOPICS, (n,), generator=gen)
    words = torch.randint(lo, hi, (n, 3), generator=gen)
    slang = OLD + topic + TOPICS * torch.randint(0, NEW // TOPICS, (n,), generator=gen)
    return torch.cat([words, slang[:, None]], 1), old_topic[words], topic


class SlangModel(nn.Module):
    def __init__(self, old_vec, topic_vec):
        super().__init__()
        self.words = nn.Embedding(OLD + NEW, DIM)
        with torch.no_grad():
            self.words.weight[:OLD] = old_vec
            self.words.weight[OLD:] *= 0.1
        self.register_buffer("topics", topic_vec)

    def forward(self, ids):
        vec = self.words(ids)
        return vec.sum(1) @ self.topics.T * 2.0, vec[:, :-1] @ self.topics.T * 4.0


def keep_new_rows(grad):
    grad = grad.clone()
    grad[:OLD] = 0.0
    return grad


def main():
    torch.manual_seed(1)
    gen = torch.Generator().manual_seed(77)
    topic_vec, old_topic, old_vec, new_topic = world(gen)
    model = SlangModel(old_vec, topic_vec)
    model.words.weight.register_hook(keep_new_rows)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.02, weight_decay=0.2)  # HERE

    def old_word_loss():
        ids, word_topic, _ = phrases(1000, old_topic, new_topic, torch.Generator().manual_seed(3), rare=True)
        with torch.no_grad():
            logits = model(ids)[1]
        return F.cross_entropy(logits.flatten(0, 1), word_topic.flatten()).item()

    print(f"old words before: loss {old_word_loss():.4f}")
    for step in range(600):
        ids, _, topic = phrases(32, old_topic, new_topic, gen, rare=False)
        loss = F.cross_entropy(model(ids)[0], topic)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if (step + 1) % 100 == 0:
            norm = model.words.weight[:OLD].norm(dim=1).mean().item()
            print(f"step {step + 1} loss {loss.item():.4f} old words loss {old_word_loss():.4f} norm {norm:.3f}")
    ids, _, topic = phrases(1000, old_topic, new_topic, gen, rare=True)
    with torch.no_grad():
        acc = (model(ids)[0].argmax(1) == topic).float().mean().item()
    print(f"final old words loss {old_word_loss():.4f} slang accuracy {acc:.3f}")


if __name__ == "__main__":
    main()
