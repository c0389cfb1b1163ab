"""Derives facts that several rules need: what learned, what ran last, which modules names share."""
