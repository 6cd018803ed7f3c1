"""Settings: defaults, then the file, then variables; what makes no sense gets one sentence."""

from __future__ import annotations

import os

import pytest

from outlast.errors import BadInput, StateRefused
from outlast.light import fields
from outlast.settings import Settings, default_home, load


def write(home, text):
    (home / "config.toml").write_text(text)
    return str(home)


def refusal(home, env=None):
    with pytest.raises(BadInput) as caught:
        load(str(home), env or {})
    message = caught.value.message
    assert message.endswith(".")
    assert "\n" not in message
    return message


def test_defaults_hold_where_nothing_is_set(tmp_path):
    assert load(str(tmp_path), {}) == Settings()


def test_the_file_wins_over_defaults_and_variables_win_over_the_file(tmp_path):
    home = write(tmp_path, 'retention_hours = 1\nkill_grace_s = 0.5\nsession = "mine"\n')
    found = load(home, {"OUTLAST_RETENTION_HOURS": "2.5", "OUTLAST_OUTPUT_LIMIT_BYTES": "5000"})
    assert found == Settings(retention_hours=2.5, kill_grace_s=0.5, session="mine", output_limit_bytes=5000)


def test_every_setting_can_be_set_by_its_variable(tmp_path):
    for name, default in fields(Settings()).items():
        if isinstance(default, dict):
            continue  # a table, which only the file can have
        wanted = "text" if isinstance(default, str) else type(default)(default + 1000)
        found = load(str(tmp_path), {"OUTLAST_" + name.upper(): str(wanted)})
        assert getattr(found, name) == wanted
        assert fields(found) == {**fields(Settings()), name: wanted}


def test_an_empty_variable_sets_nothing(tmp_path):
    assert load(str(tmp_path), {"OUTLAST_KILL_GRACE_S": "", "OUTLAST_SESSION": ""}) == Settings()


def test_other_variables_are_none_of_our_business(tmp_path):
    others = {"OUTLAST_HOME": "/x", "OUTLAST_TASK_ID": "bash-1", "RETENTION_HOURS": "3"}
    assert load(str(tmp_path), others) == Settings()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("output_limit_bytes", "1023"),
        ("output_limit_bytes", "-1"),
        ("state_limit_bytes", "1000"),
        ("free_floor_bytes", "-1"),
        ("retention_hours", "-0.1"),
        ("retention_hours", "nan"),
        ("foreground_limit_s", "0"),
        ("max_wait_s", "-5"),
        ("kill_grace_s", "-1"),
        ("shown_chars", "10"),
    ],
)
def test_a_number_below_the_least_is_refused_and_named(tmp_path, name, value):
    variable = "OUTLAST_" + name.upper()
    message = refusal(tmp_path, {variable: value})
    assert variable in message
    assert "at least" in message


@pytest.mark.parametrize("value", ["abc", "1e", "1,5", "0x10", "1.5"])
def test_what_is_no_number_is_refused(tmp_path, value):
    assert "must be a number" in refusal(tmp_path, {"OUTLAST_OUTPUT_LIMIT_BYTES": value})


@pytest.mark.parametrize("value", ["true", "[1]", '"many"', "1000.5", "inf", "1979-05-27"])
def test_a_wrong_kind_of_value_in_the_file_is_refused(tmp_path, value):
    write(tmp_path, f"shown_chars = {value}\n")
    message = refusal(tmp_path)
    assert "'shown_chars' in" in message
    assert "number" in message


def test_a_yes_is_no_number_of_seconds(tmp_path):
    write(tmp_path, "kill_grace_s = true\n")
    assert "number" in refusal(tmp_path)


def test_a_number_that_nothing_can_hold_is_refused(tmp_path):
    assert "at most" in refusal(tmp_path, {"OUTLAST_OUTPUT_LIMIT_BYTES": "1" + "0" * 30})


def test_a_whole_number_will_do_where_a_fraction_is_allowed(tmp_path):
    assert load(write(tmp_path, "kill_grace_s = 3\n"), {}).kill_grace_s == 3.0


def test_text_must_be_text(tmp_path):
    write(tmp_path, "session = 5\n")
    assert "must be text" in refusal(tmp_path)


def test_an_unknown_name_in_the_file_is_refused_with_those_that_are_known(tmp_path):
    write(tmp_path, "retention_days = 1\n")
    message = refusal(tmp_path)
    assert "'retention_days'" in message
    assert "retention_hours" in message


@pytest.mark.parametrize("text", ["= 1", "session = ", "a\0b = 1"])
def test_a_file_that_is_not_toml_is_refused(tmp_path, text):
    write(tmp_path, text)
    assert "not valid TOML" in refusal(tmp_path)


def test_a_file_that_is_not_text_is_refused(tmp_path):
    (tmp_path / "config.toml").write_bytes(b"session = '\xff\xfe'\n")
    assert "not valid TOML" in refusal(tmp_path)


def test_a_file_that_cannot_be_read_is_refused_not_taken_for_empty(tmp_path):
    (tmp_path / "config.toml").mkdir()
    assert "cannot be read" in refusal(tmp_path)


def test_a_file_in_the_working_directory_is_never_read(tmp_path, monkeypatch):
    here = tmp_path / "repository"
    here.mkdir()
    write(here, "retention_hours = 999\n")
    monkeypatch.chdir(here)
    assert load(str(tmp_path), {}) == Settings()


@pytest.mark.parametrize(
    ("env", "home"),
    [
        ({"OUTLAST_HOME": "/a/b"}, "/a/b"),
        ({"OUTLAST_HOME": "/a/b", "XDG_STATE_HOME": "/x"}, "/a/b"),
        ({"XDG_STATE_HOME": "/x"}, "/x/outlast"),
        ({"OUTLAST_HOME": "", "XDG_STATE_HOME": "/x"}, "/x/outlast"),
    ],
)
def test_where_state_lives(env, home):
    assert default_home(env) == home


def test_state_lives_below_the_users_home_otherwise(monkeypatch):
    monkeypatch.setenv("HOME", "/home/somebody")
    assert default_home({}) == "/home/somebody/.local/state/outlast"


@pytest.mark.parametrize("given", ["", "here", "./here"])
def test_a_home_directory_that_is_no_absolute_path_is_refused(monkeypatch, given):
    monkeypatch.setenv("HOME", given)
    with pytest.raises(StateRefused, match="HOME is not an absolute path; set OUTLAST_HOME"):
        default_home({})


def test_a_relative_state_directory_of_the_desktop_is_ignored(monkeypatch):
    monkeypatch.setenv("HOME", "/home/somebody")
    assert default_home({"XDG_STATE_HOME": "here"}) == "/home/somebody/.local/state/outlast"


def test_a_relative_home_is_made_absolute():
    assert default_home({"OUTLAST_HOME": "here"}) == os.path.join(os.getcwd(), "here")
