"""The rule for updates by hand that climb: they raise the loss."""
