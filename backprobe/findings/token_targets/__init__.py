"""The rule for losses over tokens whose targets are not the next tokens of the sequence."""
