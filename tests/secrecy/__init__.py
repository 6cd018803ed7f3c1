"""Secrets are neither passed on nor shown, and a session sees only what is its own."""

from __future__ import annotations

import random
import string

HEX = "0123456789abcdef"
_UPPER = string.ascii_uppercase + string.digits


def letters(count: int, seed: str, among: str = string.ascii_letters + string.digits) -> str:
    """As good as random, and the same in every run."""
    return "".join(random.Random(seed).choices(among, k=count - 1)) + "7"


def key_block(kind: str = "RSA PRIVATE KEY", lines: int = 25) -> str:
    body = "\n".join(letters(64, f"{kind}{number}") for number in range(lines))
    return f"-----BEGIN {kind}-----\n{body}\nshort8==\n-----END {kind}-----"


# Each with the part of it that must not be seen.
TOKENS = {
    "GitHub": ("ghp_", letters(36, "ghp")),
    "GitHub app": ("ghs_", letters(36, "ghs")),
    "GitHub fine-grained": ("github_pat_", f"{letters(22, 'pat')}_{letters(59, 'pat2')}"),
    "GitLab": ("glpat-", letters(20, "glpat")),
    "AWS id": ("AKIA", letters(16, "akia", _UPPER)),
    "AWS temporary id": ("ASIA", letters(16, "asia", _UPPER)),
    "AWS secret": ("aws_secret_access_key = ", letters(40, "aws")),
    "Slack": ("xoxb-", f"{letters(12, 'x', string.digits)}-{letters(24, 'xx')}"),
    "Slack hook": (
        "https://hooks.slack.com/services/",
        f"T{letters(8, 'h', _UPPER)}/B{letters(8, 'i', _UPPER)}/{letters(24, 'j')}",
    ),
    "Stripe": ("sk_live_", letters(24, "stripe")),
    "OpenAI": ("sk-", letters(48, "openai")),
    "OpenAI project": ("sk-proj-", letters(120, "project")),
    "Anthropic": ("sk-ant-", f"api03-{letters(93, 'ant')}-AA"),
    "Google": ("AIza", letters(35, "google")),
    "npm": ("npm_", letters(36, "npm")),
    "PyPI": ("pypi-AgE", f"IcHlwaS5vcmc{letters(150, 'pypi')}"),
    "JWT": ("eyJ", f"hbGciOiJIUzI1NiJ9.eyJ{letters(80, 'jwt')}.{letters(43, 'sig')}"),
    "URL": ("postgres://", "admin:correct-horse"),
    "bearer": ("Authorization: Bearer ", letters(40, "bearer")),
    "basic": ("authorization: Basic ", letters(24, "basic") + "=="),
    "SendGrid": ("SG.", f"{letters(22, 'sg')}.{letters(43, 'sg2')}"),
    "Twilio": ("SK", letters(32, "twilio", HEX)),
    "Telegram": ("123456789:AA", letters(33, "telegram")),
    "Hugging Face": ("hf_", letters(34, "hf")),
    "DigitalOcean": ("dop_v1_", letters(64, "do", HEX)),
    "Azure": ("AccountKey=", letters(86, "azure") + "=="),
    "Vault": ("hvs.", letters(24, "vault")),
    "private key": ("-----BEGIN RSA PRIVATE KEY-----\n", key_block().split("-----\n")[1].rpartition("\n")[0]),
}
BEHIND = {"URL": "@db.example/app"}  # what makes it one


def told(kind: str) -> str:
    """A token as a command would print it."""
    literal, secret = TOKENS[kind]
    return literal + secret + BEHIND.get(kind, "")


CANARIES = {
    "GITHUB_TOKEN": told("GitHub"),
    "AWS_SECRET_ACCESS_KEY": letters(40, "c1"),
    "AWS_ACCESS_KEY_ID": told("AWS id"),
    "AWS_SESSION_TOKEN": letters(200, "c2"),
    "OPENAI_API_KEY": told("OpenAI project"),
    "ANTHROPIC_API_KEY": told("Anthropic"),
    "SLACK_BOT_TOKEN": told("Slack"),
    "STRIPE_KEY": told("Stripe"),
    "PGPASSWORD": "canary-of-postgres",
    "MYSQL_PWD": "canary-of-mysql",
    "DB_PASS": "canary-of-db-1",
    "DATABASE_URL": told("URL"),
    "NPM_TOKEN": told("npm"),
    "DJANGO_SECRET_KEY": letters(50, "c3"),
    "SSH_PRIVATE_KEY": key_block("OPENSSH PRIVATE KEY", 8),
    "REDISCLI_AUTH": "canary-of-redis",
    "clientSecret": letters(32, "c4"),
    "GPG_PASSPHRASE": "canary of a phrase with blanks",
    "SENTRY_DSN": f"https://{letters(32, 'c5', HEX)}@sentry.example/1",
    "HARMLESS_NAME": told("GitLab"),
}
PARTS = [line.strip() for value in CANARIES.values() for line in value.splitlines() if len(line.strip()) > 11]


def leaks(text: str | bytes) -> list[str]:
    """The canaries that are in a text, whole or a line of them."""
    data = text.encode() if isinstance(text, str) else text
    return [part for part in PARTS if part.encode() in data and "KEY-----" not in part]
