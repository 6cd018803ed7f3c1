"""What runs beside the command: supervisor, keeper, nursery. Standard library only."""
