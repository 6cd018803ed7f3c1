"""Real agents and tools of the protocol's makers against `outlast mcp`, offline.

The model is a script on loopback (`scripted`). `python -m tests.clients` plays all of it and
tells figures; the tests play the same scenes.
"""
