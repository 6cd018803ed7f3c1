"""`Shell`, the one object that a user holds: `shell.py` has its methods.

Its parts share a `Context`: `starter` judges and starts commands, `reader` reads, `flows` waits, `control` ends and
removes, `notices` and `agents` do what they say. Nothing is imported here: one part must not load them all.
"""
