"""The ten episodes in short form: times are scaled down, and only Outlast plays. How long it takes is not tested."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from xml.etree import ElementTree

import pytest

from bench.episodes import picture, report
from bench.episodes.catalogue import EPISODES, Episode
from bench.episodes.mcp import Outlast
from bench.episodes.results import Outcome, Standing
from bench.episodes.world import World, kill_processes, processes_below
from tests.conftest import eventually, processes_of

SCALE = 0.06  # the 90 s build takes 5.4 s, and the client waits 3.6 s for a reply
LOG_BYTES = 5_000_000

each_episode = pytest.mark.parametrize("episode", EPISODES, ids=[episode.key for episode in EPISODES])


@pytest.fixture
def world() -> Iterator[World]:
    """A directory with the programs of the episodes; afterwards no process that was started in it may run."""
    made = World(SCALE, LOG_BYTES)
    state = str(made.root / "state")
    try:
        yield made
        kill_processes(str(made.root))  # the programs that are meant to outlast the agent
        # The supervisors notice that their commands are gone, and end by themselves.
        eventually(lambda: not processes_of(state), what="no process of Outlast is left")
        assert processes_below(str(made.root)) == []
    finally:
        kill_processes(str(made.root))
        shutil.rmtree(made.root)


@each_episode
def test_outlast_solves(episode: Episode, world: World):
    transcript, problem = Outlast().play(episode, world)
    assert problem == "", "\n".join(
        f">>> {call.written}\n{reply.text}" for call, reply in zip(transcript.calls, transcript.replies, strict=False)
    )
    assert len(transcript.calls) == len(transcript.replies) > 0


@each_episode
def test_an_episode_in_which_nothing_happens_is_not_solved(episode: Episode, world: World):
    assert episode.check(world, "") != ""


def test_the_page_and_the_picture_show_what_was_found():
    solved = Outcome("dev_server", "", calls=2, read=1234, written=56, structured=0, repeats=0, seconds=14.5)
    unsolved = Outcome(
        "killed", "no reply has shown 0f1e2d", 5, read=700, written=8, structured=0, repeats=1, seconds=9
    )
    ours = Standing("Outlast", "1.0", 5, 700, 900, 60, [solved])
    other = Standing("Another <shell>", "2.0", 1, 80, 90, 0, [solved, unsolved])
    kept = report.as_json([ours, other], {"Third": "it is not installed"}, 1.0)

    standings, missing, scale = report.from_json(kept)
    assert standings == [ours, other]
    page = report.page(standings, missing, scale)
    assert "| Outlast 1.0 | 1 of 1 | 2 | 1,234 | 56 | 700 (5) | 0 | 0 | 14 |" in page
    assert "| Agent killed and restarted | - | 5 / 700 / 8 ✗ |" in page
    assert "Another <shell>, Agent killed and restarted: no reply showed what the user asked for" in page
    assert "Third took no part: it is not installed" in page
    assert "0f1e2d" not in page

    texts = [text.text for text in ElementTree.fromstring(picture.draw(standings)).iter() if text.tag.endswith("text")]
    assert "Another <shell>" in texts
    assert "1,934" in texts
