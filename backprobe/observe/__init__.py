"""Instrumentation: attaches to torch, produces records, and undoes all changes at the end."""
