"""Rule for modules that stand several times in a container since the script repeats a reference."""
