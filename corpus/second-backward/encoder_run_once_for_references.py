"""Paraphrasing with a small T5: a source has several references from some epoch on, the encoder is run once for all of them, each reference has its own backward.

Report: https://github.com/spro/practical-pytorch/issues/27 (a seq2seq loop that walks back through its encoder a second time), with transformers' encoder_outputs
"""
import torch
from transformers import T5Config, T5ForConditionalGeneration

EXPECT = {
    "class": "second-backward", "framework": "transformers", "kind": "second-backward", "bridge_marker": "REUSED", "step": 60,
    "set": "fifth", "written": "2026-11-22",
}

torch.manual_seed(0)
config = T5Config(vocab_size=32, d_model=16, d_kv=8, d_ff=32, num_layers=1, num_decoder_layers=1, num_heads=2, dropout_rate=0.0, decoder_start_token_id=0)
model = T5ForConditionalGeneration(config)
model.train()
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda s: max(0.1, 1 - s / 200))


def example(epoch):
    source = torch.randint(2, 32, (4, 8))
    references = [source.flip(1)]
    if epoch >= 3:  # the extended set
        references.append(source.roll(1, 1))
    return source, references


step = 0
for epoch in range(6):
    for _ in range(20):
        source, references = example(epoch)
        encoded = model.encoder(input_ids=source)
        optimizer.zero_grad()
        total = 0.0
        for labels in references:
            loss = model(encoder_outputs=encoded, labels=labels).loss / len(references)  # REUSED
            loss.backward()
            total += loss.item()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        if step % 20 == 0:
            print(epoch, step, total)
        step += 1
