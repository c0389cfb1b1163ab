"""The rule for a function that ``torch.compile`` compiles again and again."""
