"""What runs beside the command: supervisor, keeper, nursery. Standard library only."""

EXISTS = "exists"  # a supervisor's answer when the id that it was given is taken
ENDED = b"e"  # a supervisor's last word to whoever started its task: the end is recorded
