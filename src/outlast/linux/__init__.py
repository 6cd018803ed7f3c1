"""What Outlast needs of Linux: processes and their trees, files and locks."""
