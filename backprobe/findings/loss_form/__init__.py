"""Rules for losses that are put together from the wrong parts: normalised twice, or with the wrong sign."""
