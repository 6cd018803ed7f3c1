"""Agents as tasks: which types there are, how each is run, and how what it prints is understood.

A command of its own (`claude`, `codex`, an ACP agent) is run by our runner; a coroutine runs in its host,
and an agent that another program started runs elsewhere: a small process represents each of them here. So every
agent is a task with a process, and all that can be done with tasks can be done with agents.
"""
