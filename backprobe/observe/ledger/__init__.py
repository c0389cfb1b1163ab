"""Accounts for what happens to a parameter and its gradient between two steps of its optimizer."""
