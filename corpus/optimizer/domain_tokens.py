"""Fine-tunes a small GPT-2 style language model after adding domain tokens; the output layer never learns because the optimizer was built before the vocabulary was resized.

Report: https://github.com/huggingface/transformers/pull/3532 (the embedding matrix was resized after its parameters had been passed to the optimizer, so the new token embeddings were not updated)
What is seen: model.lm_head.weight is the same tensor, bit for bit, at the end as after the resize, and the loss stays higher than
with the optimizer built afterwards.
"""
import torch
from torch.utils.data import DataLoader
from transformers import GPT2Config, GPT2LMHeadModel, get_linear_schedule_with_warmup

EXPECT = {
    "framework": "transformers", "kind": "parameter-not-in-optimizer", "line": ("optimizer", "OTHER"),
    "what": "the optimizer was created before resize_token_embeddings replaced the output layer, so the new lm_head is not among its parameters; resize first, then build the optimizer",
    "set": "nineteenth", "written": "2026-11-27",
}

BASE_VOCAB, EXTRA = 40, 12


def corpus(n, length, gen):
    vocab = BASE_VOCAB + EXTRA
    nxt = torch.randperm(vocab, generator=gen)
    seq = torch.randint(0, vocab, (n, 1), generator=gen)
    rows = [seq]
    for _ in range(length - 1):
        follow = nxt[rows[-1]]
        noise = torch.randint(0, vocab, (n, 1), generator=gen)
        keep = torch.rand(n, 1, generator=gen) < 0.9
        rows.append(torch.where(keep, follow, noise))
    return torch.cat(rows, 1)


def main():
    torch.manual_seed(5)
    gen = torch.Generator().manual_seed(5)
    config = GPT2Config(vocab_size=BASE_VOCAB, n_positions=32, n_embd=32, n_layer=2, n_head=2, tie_word_embeddings=False,
                        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=0, eos_token_id=0)
    model = GPT2LMHeadModel(config)

    no_decay = ("bias", "ln_1.weight", "ln_2.weight", "ln_f.weight")
    groups = [
        {"params": [p for n, p in model.named_parameters() if not n.endswith(no_decay)], "weight_decay": 0.01},
        {"params": [p for n, p in model.named_parameters() if n.endswith(no_decay)], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=3e-3)  # OTHER
    model.resize_token_embeddings(BASE_VOCAB + EXTRA)  # CAUSE

    data = corpus(640, 24, gen)
    loader = DataLoader(data[:512], batch_size=16, shuffle=True, generator=gen)
    held_out = data[512:]
    epochs = 5
    scheduler = get_linear_schedule_with_warmup(optimizer, 10, epochs * len(loader))
    head_before = model.lm_head.weight.detach().clone()
    step = 0
    for epoch in range(epochs):
        model.train()
        for ids in loader:
            loss = model(input_ids=ids, labels=ids).loss
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            model.zero_grad()
            step += 1
        model.eval()
        with torch.no_grad():
            val = model(input_ids=held_out, labels=held_out).loss
        print(f"epoch {epoch} step {step} train {loss.item():.4f} val {val.item():.4f}")
    print("lm_head moved by", (model.lm_head.weight - head_before).abs().max().item())


if __name__ == "__main__":
    main()
