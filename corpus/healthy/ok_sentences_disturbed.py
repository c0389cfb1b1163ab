"""Healthy: virtual adversarial training of a tiny BERT; a direction is sought by a gradient with respect to noise on the embeddings, which is a leaf of its own and is taken by autograd.grad, and what is compared with is held fixed.

Report it resembles: https://github.com/enricivi/adversarial_training_methods/issues/7 (of what the gradient is taken in virtual adversarial training, and with respect to what)
"""
import torch
from torch.nn import functional as F
from transformers import BertConfig, BertForSequenceClassification

EXPECT = {"class": "healthy", "framework": "transformers", "kind": "none", "set": "tenth", "written": "2026-11-23"}
WORDS = 40


def unit(d, mask):
    d = d * mask[:, :, None]
    return d / (d.flatten(1).norm(dim=1)[:, None, None] + 1e-8)


def smoothness(model, embeds, mask, xi=0.1, epsilon=0.5):
    with torch.no_grad():
        clean = model(inputs_embeds=embeds, attention_mask=mask).logits.log_softmax(1)
    d = unit(torch.randn_like(embeds), mask).requires_grad_()
    disturbed = model(inputs_embeds=embeds.detach() + xi * d, attention_mask=mask).logits.log_softmax(1)
    (direction,) = torch.autograd.grad(F.kl_div(disturbed, clean, log_target=True, reduction="batchmean"), d)
    moved = embeds + epsilon * unit(direction, mask).detach()
    return F.kl_div(model(inputs_embeds=moved, attention_mask=mask).logits.log_softmax(1), clean, log_target=True, reduction="batchmean")


def reviews(n, length=12):
    ids = torch.randint(2, WORDS, (n, length))
    ids[:, 0] = 1
    used = torch.randint(6, length + 1, (n, 1))
    mask = (torch.arange(length) < used).long()
    good = ((ids >= 2) & (ids < 12)).float() - ((ids >= 12) & (ids < 22)).float()
    return ids, mask, ((good * mask).sum(1) > 0).long()


torch.manual_seed(0)
config = BertConfig(vocab_size=WORDS, hidden_size=24, num_hidden_layers=2, num_attention_heads=2, intermediate_size=48, max_position_embeddings=16, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, num_labels=2)
model = BertForSequenceClassification(config)
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
for step in range(70):
    ids, mask, label = reviews(24)
    unlabelled, unlabelled_mask, _ = reviews(24)
    loss = F.cross_entropy(model(input_ids=ids, attention_mask=mask).logits, label)
    if step >= 30:
        loss = loss + smoothness(model, model.get_input_embeddings()(unlabelled), unlabelled_mask)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 10 == 0:
        print(step, loss.item())
