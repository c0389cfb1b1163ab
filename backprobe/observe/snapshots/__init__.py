"""Conversion of an existing autograd graph into plain data."""
