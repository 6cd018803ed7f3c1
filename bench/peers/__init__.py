"""Who takes part: raw, ours, and every other system that is installed, each behind the same few verbs."""

from __future__ import annotations

from bench.peers.base import Peer
from bench.peers.before import Before
from bench.peers.loop import Asyncio
from bench.peers.mcp import Commands, DesktopCommander, Mako
from bench.peers.nq import Nq
from bench.peers.ours import Ours
from bench.peers.pipe import Pipe
from bench.peers.raw import Raw
from bench.peers.spooler import Spooler
from bench.peers.supervisord import Supervisord
from bench.peers.swerex import SweRex
from bench.peers.tmux import Tmux

__all__ = ["OTHERS", "Before", "Ours", "Peer", "Raw"]

OTHERS: tuple[type[Peer], ...] = (
    Before,
    Pipe,
    Asyncio,
    Tmux,
    Spooler,
    Nq,
    Supervisord,
    SweRex,
    DesktopCommander,
    Commands,
    Mako,
)
