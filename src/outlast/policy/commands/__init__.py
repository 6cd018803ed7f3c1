"""What is known about programs: their options and operands, what they run, and what they destroy."""
