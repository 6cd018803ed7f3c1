"""`outlast top`: all tasks on one full-screen page of the terminal, made with textual."""
