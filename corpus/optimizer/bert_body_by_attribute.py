"""A small BERT whose encoder layers are meant to be frozen in a loop: the loop sets an attribute of each layer, and the layers go on training."""
import torch
from transformers import BertConfig, BertForSequenceClassification

EXPECT = {
    "class": "freeze-without-effect", "framework": "transformers", "kind": "freeze-without-effect", "line": ("cause", "FREEZES"),
    "set": "ledger", "written": "2026-11-27",
}


def main():
    torch.manual_seed(0)
    config = BertConfig(vocab_size=50, hidden_size=32, num_hidden_layers=3, num_attention_heads=2, intermediate_size=64, max_position_embeddings=16, num_labels=2)
    model = BertForSequenceClassification(config)
    for layer in model.bert.encoder.layer[:2]:
        layer.requires_grad = False  # FREEZES
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-3)
    for step in range(40):
        ids = torch.randint(0, 50, (16, 12))
        loss = model(input_ids=ids, labels=(ids[:, 0] > 24).long()).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 10 == 0:
            print(step, loss.item())


if __name__ == "__main__":
    main()
