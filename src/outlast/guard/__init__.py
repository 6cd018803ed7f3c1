"""`outlast-guard`, the program that stays with a command: its C sources, how it is built, and how to talk to it."""
