"""Producers: attach to torch, emit records, undo everything. The only code here that imports torch."""
