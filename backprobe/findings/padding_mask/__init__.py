"""Rule for masks that hide the tokens of sequences and leave their padding visible."""
