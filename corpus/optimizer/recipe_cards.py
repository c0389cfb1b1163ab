"""Add_words() replaces the (tied) embedding at step 150, after the optimizer was made, so from then on the embedding
and output rows, the new words among them, are never updated; only the transformer body moves.

Report: github.com/huggingface/transformers pull request 3532 and 3519 (resizing after the parameters were handed to
the optimizer)
"""
import torch
from transformers import GPT2Config, GPT2LMHeadModel, set_seed

EXPECT = {
    "kind": "parameter-not-in-optimizer",
    "line": ("optimizer", "HERE"),
    "plain": "new words are never predicted (0.000, valid loss 1.42) as it is; 0.951 (valid loss 0.49) with the new table given to the optimizer",
    "set": "eighteen_classes",
    "written": "2026-11-29",
}


set_seed(4)
WORDS, LENGTH = 60, 16
NEW_WORDS = ["<serves>", "<minutes>", "<oven>", "<chill>", "<spice>", "<stir>", "<rest>", "<plate>"]


def cards(n, vocab, generator):
    """Each card walks through a fixed order of words by a step that its first word decides."""
    order = torch.randperm(vocab, generator=torch.Generator().manual_seed(vocab))
    start = torch.randint(0, vocab, (n, 1), generator=generator)
    stride = 1 + start % 5
    walk = (start + stride * torch.arange(LENGTH)) % vocab
    walk = order[walk]
    slip = torch.rand(n, LENGTH, generator=generator) < 0.03
    slip[:, 0] = False
    return torch.where(slip, torch.randint(0, vocab, (n, LENGTH), generator=generator), walk)


def make_model():
    config = GPT2Config(
        vocab_size=WORDS,
        n_positions=LENGTH,
        n_embd=32,
        n_layer=2,
        n_head=2,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        bos_token_id=0,
        eos_token_id=0,
    )
    return GPT2LMHeadModel(config)


def add_words(model, count):
    old = model.get_input_embeddings().weight.data
    total, dim = old.shape[0] + count, old.shape[1]
    table = torch.nn.Embedding(total, dim)
    torch.nn.init.normal_(table.weight, std=0.02)
    table.weight.data[: old.shape[0]] = old
    model.set_input_embeddings(table)
    model.lm_head = torch.nn.Linear(dim, total, bias=False)
    model.lm_head.weight = table.weight
    model.config.vocab_size = total


@torch.no_grad()
def evaluate(model, generator):
    model.eval()
    ids = cards(300, model.config.vocab_size, generator)
    out = model(input_ids=ids, labels=ids)
    hit = (out.logits[:, 1:-1].argmax(-1) == ids[:, 2:]).float()
    fresh = ids[:, 2:] >= WORDS
    model.train()
    return out.loss.item(), hit.mean().item(), hit[fresh].mean().item()


def main():
    g = torch.Generator().manual_seed(8)
    model = make_model()
    opt = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.0)  # HERE
    sched = torch.optim.lr_scheduler.LambdaLR(opt, lambda s: min(1.0, (s + 1) / 40))
    model.train()
    for step in range(1, 501):
        if step == 150:
            add_words(model, len(NEW_WORDS))
        ids = cards(32, model.config.vocab_size, g)
        loss = model(input_ids=ids, labels=ids).loss
        opt.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        sched.step()
        if step % 100 == 0:
            total, hit, fresh = evaluate(model, torch.Generator().manual_seed(70))
            print(f"step {step}  train {loss.item():.3f}  valid {total:.3f}  hit {hit:.3f}  new words {fresh:.3f}")


if __name__ == "__main__":
    main()
