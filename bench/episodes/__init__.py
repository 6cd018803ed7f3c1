"""Ten standard episodes of an agent's work with a shell, played by a scripted model with several sets of tools.

`catalogue` defines the episodes and how to check that they are solved, `programs` the programs that they use.
`strategies` says how a model works with each set of tools. `mcp` plays them with MCP servers, `agents` with agents that
have a shell of their own, whose model API `stub` answers. `run` starts the contestants, `results` counts tokens,
`report` and `picture` present the figures.
"""
