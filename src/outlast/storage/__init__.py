"""What is on disk. No other package knows a file name. Standard library only."""
