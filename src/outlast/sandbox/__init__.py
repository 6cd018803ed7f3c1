"""Confinement of a command: which kind is chosen, and what each kind needs."""
