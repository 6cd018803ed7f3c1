"""What runs beside the command: supervisor, keeper, nursery. Standard library only."""

EXISTS = "exists"  # a supervisor's answer when the id that it was given is taken
ENDED = b"e"  # a supervisor's last word to whoever started its task: the end is recorded

# What a nursery is sent: the supervisor's line to the caller, what to prepare, and the command's input if it is a text.
MOST_DESCRIPTORS = 3
