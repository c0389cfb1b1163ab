"""Fine-tunes a small BERT classifier, head first and encoder from step 80 on; the encoder never starts to learn.
Report: https://github.com/luxonis/luxonis-train/pull/432 (unfrozen parameters could end up in no optimizer) and
https://github.com/fastai/fastai/issues/2133 (the optimizer is made from the trainable parameters only, so after unfreeze it must be made anew)
Effect: the encoder's weights do not move by one bit, the accuracy stays at 0.77 or below (0.94 in the mended copy).
"""
import torch
from torch.utils.data import DataLoader, TensorDataset
from transformers import BertConfig, BertForSequenceClassification
from transformers.utils import logging

EXPECT = {
    "framework": "transformers", "kind": "parameter-not-in-optimizer", "line": ("optimizer", "OTHER"),
    "what": "the encoder is unfrozen but its parameters were filtered out when the optimizer was made and never added, so they are not updated",
    "set": "twentieth", "written": "2026-11-27",
}

logging.set_verbosity_error()
CLS = 1
VOCAB, LENGTH, UNFREEZE_AT, STEPS = 40, 16, 80, 200


def reviews(n, gen):
    """Opinion words among fillers; the label says which side has the majority."""
    ids = torch.randint(15, VOCAB, (n, LENGTH), generator=gen)
    side = torch.rand(n, LENGTH, generator=gen)
    labels = torch.randint(0, 2, (n,), generator=gen)
    share = torch.where(labels == 1, 0.42, 0.13).unsqueeze(1)
    ids = torch.where(side < share, torch.randint(3, 9, ids.shape, generator=gen), ids)
    ids = torch.where(side > 1 - (0.55 - share), torch.randint(9, 15, ids.shape, generator=gen), ids)
    ids[:, 0] = CLS
    return ids, labels


def set_encoder_trainable(model, flag):
    for p in model.bert.parameters():
        p.requires_grad = flag


@torch.no_grad()
def accuracy(model, ids, labels):
    model.eval()
    hit = (model(input_ids=ids).logits.argmax(-1) == labels).float().mean().item()
    model.train()
    return hit


def main():
    torch.manual_seed(13)
    gen = torch.Generator().manual_seed(13)
    train = TensorDataset(*reviews(1600, gen))
    valid = reviews(400, gen)
    config = BertConfig(vocab_size=VOCAB, hidden_size=48, num_hidden_layers=2, num_attention_heads=4, intermediate_size=96,
                        max_position_embeddings=LENGTH, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
                        initializer_range=0.08, num_labels=2)
    model = BertForSequenceClassification(config)
    set_encoder_trainable(model, False)
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=2e-3)  # OTHER

    step = 0
    while step < STEPS:
        for ids, labels in DataLoader(train, batch_size=32, shuffle=True):
            if step == UNFREEZE_AT:
                print("encoder unfrozen")
                set_encoder_trainable(model, True)  # CAUSE
            loss = model(input_ids=ids, labels=labels).loss
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            if step % 20 == 0:
                print(f"step {step:3d}  loss {loss.item():.3f}  valid accuracy {accuracy(model, *valid):.3f}")
            if step == STEPS:
                break


if __name__ == "__main__":
    main()
