"""Vision transformer with two groups for weight decay, made from what ends in "weight" and in "bias"; the class token and the positions end in neither.

Report: https://github.com/karpathy/minGPT/issues/23 (positions that are no module and fall out of the decay groups; also graphnet-team/graphnet issue 713)
"""
import torch
from transformers import ViTConfig, ViTForImageClassification

EXPECT = {
    "class": "no-optimizer", "framework": "transformers", "kind": "parameter-not-in-optimizer", "optimizer_marker": "OPTIMIZER",
    "parameters": ["vit.embeddings.cls_token", "vit.embeddings.position_embeddings"],
    "set": "third", "written": "2026-11-22",
}


def build_optimizer(model, lr, weight_decay):
    decay, no_decay = [], []
    for name, p in model.named_parameters():
        if name.endswith("bias") or "layernorm" in name:
            no_decay.append(p)
        elif name.endswith("weight"):
            decay.append(p)
    groups = [{"params": decay, "weight_decay": weight_decay}, {"params": no_decay, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=lr)  # OPTIMIZER


torch.manual_seed(0)
config = ViTConfig(
    hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32, image_size=8, patch_size=4, num_channels=1, num_labels=4,
)
model = ViTForImageClassification(config)
opt = build_optimizer(model, 1e-3, 0.05)
sched = torch.optim.lr_scheduler.OneCycleLR(opt, 3e-3, total_steps=40)
before = model.vit.embeddings.position_embeddings.detach().clone()
for step in range(40):
    pixels, labels = torch.randn(6, 1, 8, 8), torch.randint(0, 4, (6,))
    loss = model(pixel_values=pixels, labels=labels).loss
    opt.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    opt.step()
    sched.step()
print("reproduced", torch.equal(before, model.vit.embeddings.position_embeddings))
