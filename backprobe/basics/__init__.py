"""Errors, texts, files and the terminal: the parts that every other one uses, and that know none of them."""
