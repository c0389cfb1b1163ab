"""How much is looked at when: where steps end, what is asked for, what watching costs."""
