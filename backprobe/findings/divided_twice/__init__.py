"""Rule for losses that the script and a library divide by the number of accumulated batches."""
