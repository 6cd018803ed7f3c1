"""Which variables are secret, and which of them a command gets."""

from __future__ import annotations

import pytest

from outlast.output.redaction import names_of_secrets, split_variables
from outlast.output.secret_variables import looks_secret
from outlast.settings import Settings
from tests.secrecy import CANARIES, told

pytestmark = pytest.mark.plain_user  # a user without privileges meets other limits

SECRET = """
    GITHUB_TOKEN GH_TOKEN NPM_TOKEN SLACK_TOKEN_PROD AWS_SECRET_ACCESS_KEY AWS_SESSION_TOKEN API_KEY OPENAI_API_KEY
    STRIPE_KEY SSH_PRIVATE_KEY ENCRYPTION_KEY APIKEY PGPASSWORD DB_PASSWORD DB_PASS MYSQL_PWD GPG_PASSPHRASE
    CLIENT_SECRET clientSecret DJANGO_SECRET_KEY AZURE_CREDENTIALS REDISCLI_AUTH SESSION_COOKIE SENTRY_DSN GITHUB_PAT
    OUTLAST_TOKEN
"""
NOT_SECRET = """
    PATH HOME PWD OLDPWD LANG KEY KEYBOARD MONKEY TOKENIZERS_PARALLELISM MAX_TOKENS SSH_AUTH_SOCK SSH_AGENT_PID
    XAUTHORITY PASS_RATE GPG_KEY PUBLIC_KEY SSH_PUBLIC_KEY SORT_KEY AWS_ACCESS_KEY_ID AWS_SHARED_CREDENTIALS_FILE
    TOKEN_LIMIT SECRET_NAME SSH_ASKPASS GIT_ASKPASS AUTHOR GIT_AUTHOR_NAME PASSENGER_ENV COMPASS DESKTOP_SESSION
    OUTLAST_PASS_SECRETS OUTLAST_MASK_SECRETS OUTLAST_SESSION PATHS
"""


@pytest.mark.parametrize("name", SECRET.split())
def test_names_that_look_secret(name):
    assert looks_secret(name)


@pytest.mark.parametrize("name", NOT_SECRET.split())
def test_names_that_only_look_alike(name):
    assert not looks_secret(name)


def test_a_switch_a_path_and_an_address_are_no_secrets():
    for value in ("", "1", "true", "off", "/run/secrets/token", "~/.token", "https://example.com/login"):
        assert not looks_secret("API_TOKEN", value)
    assert looks_secret("API_TOKEN", "abc")


def test_the_form_of_a_value_tells_too():
    environ = {"HARMLESS": told("GitLab"), "DATABASE_URL": told("URL"), "OTHER": "x"}
    assert split_variables(environ, Settings()).held == {"HARMLESS", "DATABASE_URL"}


def test_all_canaries_are_held_back_and_nothing_else():
    plain = {"PATH": "/bin", "HOME": "/root", "EDITOR": "vi", "LANG": "C"}
    split = split_variables({**plain, **CANARIES}, Settings())
    assert (split.open, split.held) == (plain, frozenset(CANARIES))
    assert not split.passed
    assert not split.asked


def test_settings_name_more_and_let_some_through():
    environ = {"MINE": "abc", "MY_TOKEN": "a-token", "AWS_SECRET_ACCESS_KEY": "k", "AWS_SESSION_TOKEN": "t"}
    assert split_variables(environ, Settings(secret_names="MINE OTHER")).held == set(environ)
    assert split_variables(environ, Settings(secret_names="M*")).held == set(environ)
    assert split_variables(environ, Settings(pass_secrets="AWS_*")).held == {"MY_TOKEN"}
    assert split_variables(environ, Settings(pass_secrets="MY_TOKEN AWS_SESSION_TOKEN")).held == {
        "AWS_SECRET_ACCESS_KEY"
    }
    assert split_variables(environ, Settings(hold_secrets=False)).held == set()


@pytest.mark.parametrize(
    ("pattern", "fits", "does_not"),
    [
        ("AB", ["AB"], ["A", "ABC", "XAB"]),
        ("A*", ["A", "AB"], ["BA"]),
        ("*_X", ["_X", "A_X"], ["X", "A_XY"]),
        ("A*B*C", ["ABC", "AxBxC", "ABBC"], ["AC", "ACB", "xABC"]),
        ("AB*BA", ["ABBA", "ABxBA"], ["ABA"]),
        ("*", ["", "ANY"], []),
    ],
)
def test_a_star_stands_for_anything(pattern, fits, does_not):
    environ = dict.fromkeys([*fits, *does_not], "value")
    assert sorted(split_variables(environ, Settings(secret_names=pattern)).held) == sorted(fits)


def test_a_call_asks_for_some():
    environ = {"A_TOKEN": "aaa", "B_TOKEN": "bbb", "PLAIN": "c"}
    split = split_variables(environ, Settings(), ["A_TOKEN", "PLAIN"])
    assert not split.open
    assert (split.asked, split.held) == ({"A_TOKEN": "aaa", "PLAIN": "c"}, frozenset({"B_TOKEN"}))
    assert split_variables(environ, Settings(), ["*"]).held == set()


def test_a_proxy_is_passed_on_and_its_password_is_masked():
    environ = {"HTTPS_PROXY": "http://me:the-password@proxy.example:3128", "http_proxy": "http://me:pw@x"}
    assert split_variables(environ, Settings()).held == set()
    assert names_of_secrets(environ, Settings()) == list(environ)
