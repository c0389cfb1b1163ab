"""Replaced-token pretraining (ELECTRA) on synthetic log lines. Nothing is wrong.

Looks suspicious: the small generator gets no gradient from the discriminator's loss, since the replacements are drawn from its
logits without gradient; the discriminator's loss rises while the generator becomes better; and both models hold the same
embedding tensor. All of this is the recipe of ELECTRA: the generator learns from its own masked-token loss only, the better it
is the harder the task of the discriminator, the embeddings are shared and appear once among the optimizer's parameters.
Report of the suspicion: https://github.com/google-research/electra/issues/124
"""
import torch
from torch.utils.data import DataLoader, TensorDataset
from transformers import ElectraConfig, ElectraForMaskedLM, ElectraForPreTraining

EXPECT = {
    "kind": "none",
    "framework": "transformers",
    "plain": "the generator's loss falls, the discriminator suspects replaced tokens several times more than kept ones",
    "set": "twentysixth",
    "written": "2026-11-29",
}

VOCAB, LENGTH, MASK, BATCH, EPOCHS = 64, 20, 1, 40, 5


def make_lines(count, generator):
    rows = torch.zeros(count, LENGTH, dtype=torch.long)
    service = torch.randint(0, 6, (count,), generator=generator)
    counter = torch.randint(0, 8, (count,), generator=generator)
    for place in range(LENGTH):
        kind = place % 4
        if kind == 0:
            rows[:, place] = 4 + service
        elif kind == 1:
            rows[:, place] = 12 + (counter + place // 4) % 8
        elif kind == 2:
            rows[:, place] = 24 + (service * 3 + place // 4) % 18
        else:
            rows[:, place] = 44 + torch.randint(0, 5, (count,), generator=generator)
    return rows


def build():
    shared = dict(vocab_size=VOCAB, embedding_size=32, max_position_embeddings=32, type_vocab_size=1, hidden_dropout_prob=0.0,
                  attention_probs_dropout_prob=0.0)
    small = ElectraConfig(hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=64, **shared)
    large = ElectraConfig(hidden_size=64, num_hidden_layers=2, num_attention_heads=4, intermediate_size=128, **shared)
    generator, discriminator = ElectraForMaskedLM(small), ElectraForPreTraining(large)
    discriminator.electra.embeddings.word_embeddings = generator.electra.embeddings.word_embeddings
    return generator, discriminator


def corrupt(tokens):
    hidden = torch.rand(tokens.shape) < 0.2
    return tokens.masked_fill(hidden, MASK), hidden


def one_step(generator, discriminator, tokens):
    masked, hidden = corrupt(tokens)
    output = generator(input_ids=masked, labels=tokens.masked_fill(~hidden, -100))
    with torch.no_grad():
        drawn = torch.distributions.Categorical(logits=output.logits).sample()
    filled = torch.where(hidden, drawn, tokens)
    replaced = (filled != tokens).float()
    judged = discriminator(input_ids=filled, labels=replaced)
    return output.loss, judged.loss, judged.logits, replaced


def main():
    torch.manual_seed(10)
    lines = make_lines(1700, torch.Generator().manual_seed(3))
    loader = DataLoader(TensorDataset(lines), batch_size=BATCH, shuffle=True, drop_last=True)
    generator, discriminator = build()
    unique = {id(p): p for model in (generator, discriminator) for p in model.parameters()}
    optimizer = torch.optim.AdamW(list(unique.values()), lr=2e-3)
    for epoch in range(EPOCHS):
        sums, suspected, count = [0.0, 0.0], [0.0, 0.0], [0.0, 0.0]
        for (tokens,) in loader:
            g_loss, d_loss, logits, replaced = one_step(generator, discriminator, tokens)
            loss = g_loss + 10.0 * d_loss
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(list(unique.values()), 5.0)
            optimizer.step()
            sums[0] += g_loss.item()
            sums[1] += d_loss.item()
            chance = logits.detach().sigmoid()
            for kind in (0, 1):
                suspected[kind] += chance[replaced == kind].sum().item()
                count[kind] += (replaced == kind).sum().item()
        print(f"epoch {epoch}  generator {sums[0] / len(loader):.4f}  discriminator {sums[1] / len(loader):.4f}  "
              f"suspicion on kept {suspected[0] / count[0]:.3f}  on replaced {suspected[1] / count[1]:.3f}")


if __name__ == "__main__":
    main()
