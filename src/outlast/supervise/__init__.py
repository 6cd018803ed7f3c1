"""What runs beside the command: supervisor, keeper, nursery. Standard library only."""

EXISTS = "exists"  # a supervisor's answer when the id that it was given is taken
READY = b"r"  # a supervisor's word to whom it prepared a warm task for: you may publish it and let it go
ENDED = b"e"  # a supervisor's last word to whoever started its task: the end is recorded
