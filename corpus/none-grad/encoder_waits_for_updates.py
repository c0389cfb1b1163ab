"""Recogniser on a pretrained encoder that is frozen for the first updates: the loop is one's own and never tells the model how many updates were done, so the encoder is never tuned.

Report: https://github.com/facebookresearch/av_hubert/issues/52 (how freeze_finetune_updates works: the encoder runs under no_grad until num_updates has passed it)
"""
import contextlib

import torch
from torch import nn
from transformers import BertConfig, BertModel

EXPECT = {
    "class": "cut", "framework": "transformers", "kind": "none-grad", "cut_marker": "CUT",
    "set": "fifth", "written": "2026-11-22",
}


class Recogniser(nn.Module):
    def __init__(self, freeze_finetune_updates=30):
        super().__init__()
        config = BertConfig(vocab_size=32, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32, max_position_embeddings=24)
        self.encoder = BertModel(config, add_pooling_layer=False)
        self.freeze_finetune_updates, self.num_updates = freeze_finetune_updates, 0
        self.proj = nn.Sequential(nn.Dropout(0.1), nn.Linear(16, 10))

    def set_num_updates(self, num_updates):
        self.num_updates = num_updates

    def forward(self, codes):
        tuned = self.freeze_finetune_updates <= self.num_updates
        with contextlib.ExitStack() if tuned else torch.no_grad():  # CUT
            hidden = self.encoder(input_ids=codes).last_hidden_state  # CUT
        return self.proj(hidden)


torch.manual_seed(0)
model = Recogniser()
optimizer = torch.optim.AdamW(
    [{"params": model.encoder.parameters(), "lr": 2e-4}, {"params": model.proj.parameters(), "lr": 2e-3}], betas=(0.9, 0.98)
)
warmup = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda update: min(1.0, (update + 1) / 20))
for update in range(100):
    codes = torch.randint(0, 32, (6, 20))
    target = (codes[:, 1:-1] // 4 + 1).clamp(max=9)[:, ::3]
    log_probs = model(codes).log_softmax(-1).transpose(0, 1)
    loss = nn.functional.ctc_loss(log_probs, target, torch.full((6,), 20), torch.full((6,), target.shape[1]), zero_infinity=True)
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    warmup.step()
    if update % 20 == 0:
        print(update, loss.item())
