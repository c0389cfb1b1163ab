"""What is noted of the forward: module calls, ops and their lines, values, writes, cuts."""
