"""The rule for graphs of earlier steps that stay alive."""
