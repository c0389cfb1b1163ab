"""Rule for losses that nothing divides by the number of accumulated batches."""
