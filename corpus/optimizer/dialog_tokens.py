"""Trains a small GPT-2 with a separate output layer on dialogues with added speaker tokens; the resized output layer is never updated.
Report: https://github.com/huggingface/transformers/pull/3532 (resizing after the parameters went to the optimizer: the wrong set of parameters for the embedding table is optimized)

With untied weights resize_token_embeddings makes a new lm_head, AdamW keeps the old one (the input embedding is resized in
place in transformers 5). `lm_head moved by` stays 0.0 while the rest trains; the loss ends above that of a copy with the lines swapped.
"""
import torch
from transformers import GPT2Config, GPT2LMHeadModel, get_linear_schedule_with_warmup

EXPECT = {
    "framework": "transformers", "kind": "parameter-not-in-optimizer", "line": ("optimizer", "CAUSE"),
    "what": "the optimizer was built before resize_token_embeddings, which replaces lm_head, so the new output layer is in no parameter group and never trains; resize first, then build the optimizer",
    "set": "twentysecond", "written": "2026-11-28",
}

VOCAB = 60
SPECIAL = {"<user>": 60, "<bot>": 61, "<end>": 62}


def make_dialogues(n, gen):
    rows = []
    for _ in range(n):
        topic = torch.randint(0, 6, (1,), generator=gen).item()
        ask = topic * 10 + torch.randint(0, 5, (5,), generator=gen)
        reply = topic * 10 + 5 + (ask - topic * 10)
        rows.append(torch.cat([torch.tensor([SPECIAL["<user>"]]), ask, torch.tensor([SPECIAL["<bot>"]]), reply,
                               torch.tensor([SPECIAL["<end>"]])]))
    return torch.stack(rows)


def evaluate(model, rows):
    model.eval()
    with torch.no_grad():
        loss = model(input_ids=rows, labels=rows).loss.item()
    model.train()
    return loss


def main():
    torch.manual_seed(0)
    gen = torch.Generator().manual_seed(1)
    train_rows, val_rows = make_dialogues(800, gen), make_dialogues(100, gen)

    config = GPT2Config(vocab_size=VOCAB, n_positions=32, n_embd=48, n_layer=2, n_head=4,
                        bos_token_id=0, eos_token_id=0, embd_pdrop=0.0, resid_pdrop=0.0, attn_pdrop=0.0,
                        tie_word_embeddings=False)
    model = GPT2LMHeadModel(config)
    no_decay = [p for n, p in model.named_parameters() if p.ndim < 2]
    decay = [p for n, p in model.named_parameters() if p.ndim >= 2]
    optimizer = torch.optim.AdamW([{"params": decay, "weight_decay": 0.01},  # CAUSE
                                   {"params": no_decay, "weight_decay": 0.0}], lr=2e-3)
    model.resize_token_embeddings(VOCAB + len(SPECIAL), mean_resizing=False)  # RESIZE
    total = 200
    scheduler = get_linear_schedule_with_warmup(optimizer, 10, total)
    start = model.lm_head.weight.detach().clone()

    model.train()
    for step in range(total):
        batch = train_rows[torch.randint(0, len(train_rows), (32,), generator=gen)]
        loss = model(input_ids=batch, labels=batch).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        model.zero_grad()
        if step % 50 == 49:
            print(f"step {step + 1} train {loss.item():.3f} val {evaluate(model, val_rows):.3f}")
    moved = (model.lm_head.weight.detach() - start).abs().max().item()
    print(f"lm_head moved by {moved:.4f}")


if __name__ == "__main__":
    main()
