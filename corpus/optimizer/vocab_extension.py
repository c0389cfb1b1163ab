"""A small GPT-2 is fine-tuned on chat text after four special tokens were added; the token table (tied with the head) never moves.

Report: https://github.com/huggingface/transformers/pull/3532 (the embedding matrix was resized after the parameters
had gone to the optimizer, so the wrong token table was optimized and the new rows were not updated).
Effect: transformer.wte.weight is equal to its value at the start after all 200 steps and the loss stays much higher
than with the optimizer made after the extension.
"""
import torch
from transformers import GPT2Config, GPT2LMHeadModel

EXPECT = {
    "framework": "transformers", "kind": "parameter-not-in-optimizer", "line": ("optimizer", "OTHER"),
    "what": "extending the vocabulary replaces the embedding parameter, but the optimizer was built before and still holds the old one, so the token embeddings (and the tied head) are never updated; build the optimizer after extending",
    "set": "twentyfirst", "written": "2026-11-27",
}

CHARS = "abcdefghijklmnop"
SPECIAL = ["<user>", "<bot>", "<up>", "<end>"]
vocab = {c: i for i, c in enumerate(CHARS)}


def make_dialogue(n, gen):
    """user letters, then the bot repeats every letter shifted by one."""
    user, bot, up, end = (vocab[s] for s in SPECIAL)
    letters = torch.randint(0, len(CHARS), (n, 6), generator=gen)
    reply = (letters + 1) % len(CHARS)
    col = lambda v: torch.full((n, 1), v)
    return torch.cat([col(user), letters, col(up), col(bot), reply, col(end)], dim=1)


def extend_tokens(model, tokens):
    """append rows for new tokens, keep the rows we have."""
    old = model.get_input_embeddings()
    for token in tokens:
        vocab[token] = len(vocab)
    table = torch.nn.Embedding(len(vocab), old.embedding_dim)
    with torch.no_grad():
        table.weight.normal_(std=0.02)
        table.weight[: old.num_embeddings] = old.weight
    model.set_input_embeddings(table)
    model.lm_head.weight = table.weight
    model.config.vocab_size = len(vocab)


def evaluate(model, batch):
    model.eval()
    with torch.no_grad():
        loss = model(input_ids=batch, labels=batch).loss.item()
    model.train()
    return loss


def main():
    torch.manual_seed(0)
    gen = torch.Generator().manual_seed(1)
    config = GPT2Config(vocab_size=len(CHARS), n_positions=32, n_embd=48, n_layer=2, n_head=4,
                        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=0, eos_token_id=0)
    model = GPT2LMHeadModel(config)
    decay = [p for p in model.parameters() if p.dim() > 1]
    plain = [p for p in model.parameters() if p.dim() <= 1]
    optimizer = torch.optim.AdamW([{"params": decay, "weight_decay": 0.01},  # OTHER
                                   {"params": plain, "weight_decay": 0.0}], lr=4e-3)

    extend_tokens(model, SPECIAL)  # CAUSE

    start = model.transformer.wte.weight.detach().clone()
    valid = make_dialogue(128, gen)
    model.train()
    for step in range(200):
        batch = make_dialogue(32, gen)
        loss = model(input_ids=batch, labels=batch).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step % 40 == 0:
            print(f"step {step} loss {loss.item():.3f} valid {evaluate(model, valid):.3f}")
    print("valid", round(evaluate(model, valid), 4))
    print("moved", (model.transformer.wte.weight - start).abs().max().item())


if __name__ == "__main__":
    main()
