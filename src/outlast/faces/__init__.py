"""What is seen: faces parse, call and render, and decide nothing."""
