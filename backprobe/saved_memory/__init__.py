"""The tensors that a graph saves for its backward, and the other holders of their memory."""
