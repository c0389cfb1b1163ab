"""Rule for optimizers whose updates are below a millionth of the weights in the whole run."""
