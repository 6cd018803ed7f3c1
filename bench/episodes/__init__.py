"""Ten standard episodes of an agent's work with a shell, played by a scripted model with several sets of tools.

`catalogue` says what has to be done and how to see that it was done, `strategies` how a model would do it with each
set of tools, `mcp` and `agents` carry the calls to real servers and real clients, `report` tells what came of it.
"""
