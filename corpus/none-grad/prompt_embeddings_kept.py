"""Fine-tuning with the text encoder: prompt embeddings are computed in the first epoch and kept, from the second on the text encoder has no part in the loss.

Report: https://github.com/bmaltais/kohya_ss/issues/1210 (text encoder trained with cached outputs, which the tool refuses; the cache in huggingface/diffusers pull 4505)
"""
import torch
from torch import nn
from transformers import BertConfig, BertModel

EXPECT = {
    "class": "stops-learning", "framework": "transformers", "kind": "none-grad", "cut_marker": "CUT",
    "parameters": ["text_encoder.embeddings.word_embeddings.weight"],
    "set": "third", "written": "2026-11-22",
}


class TextToImage(nn.Module):
    def __init__(self):
        super().__init__()
        config = BertConfig(vocab_size=40, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32, max_position_embeddings=16)
        self.text_encoder = BertModel(config, add_pooling_layer=False)
        self.unet = nn.Sequential(nn.Linear(12 + 16 + 1, 32), nn.SiLU(), nn.Linear(32, 12))
        self.prompt_cache = {}

    def encode_prompt(self, key, ids):
        if key in self.prompt_cache:
            return self.prompt_cache[key]  # CUT
        embeds = self.text_encoder(input_ids=ids[None]).last_hidden_state[0].mean(0)
        self.prompt_cache[key] = embeds.detach().clone()  # CUT
        return embeds

    def forward(self, noisy, t, prompts):
        text = torch.stack([self.encode_prompt(key, ids) for key, ids in prompts])
        return self.unet(torch.cat([noisy, text, t], 1))


torch.manual_seed(0)
captions = torch.randint(1, 40, (48, 7))
latents = torch.randn(48, 12)
model = TextToImage()
opt = torch.optim.AdamW([{"params": model.unet.parameters(), "lr": 1e-3}, {"params": model.text_encoder.parameters(), "lr": 1e-4}])
for epoch in range(4):
    for idx in torch.randperm(48).view(-1, 4):
        t, noise = torch.rand(4, 1), torch.randn(4, 12)
        noisy = (1 - t) * latents[idx] + t * noise
        pred = model(noisy, t, [(int(i), captions[i]) for i in idx])
        loss = nn.functional.mse_loss(pred, noise - latents[idx])
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
print("reproduced", model.text_encoder.embeddings.word_embeddings.weight.grad is None)
