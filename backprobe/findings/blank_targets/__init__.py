"""The rule for targets of a CTC loss that are its blank."""
