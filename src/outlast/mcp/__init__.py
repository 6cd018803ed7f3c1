"""The MCP server: the tools of a profile, MCP tasks, approval and output as resources, over stdio and HTTP.

Only this package imports the SDK (`mcp`), and only when `outlast mcp` runs.
"""
