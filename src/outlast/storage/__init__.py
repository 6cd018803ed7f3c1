"""What is on disk. Nobody else knows a file name. Standard library only."""
