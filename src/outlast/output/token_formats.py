"""What well-known tokens look like: a table.

Each format begins with a literal, which is found by a plain search and stays visible: `ghp_***` says what was there. A
pattern is matched only behind a literal. All patterns are bounded and use possessive quantifiers, so that matching
takes linear time.
"""

from __future__ import annotations

from outlast.light import frozen

LONGEST = 16384  # characters that any format looks ahead: a key block of 16384 bits has 13,000


@frozen
class Format:
    """One kind of token. What `pattern` matches behind a literal (its group, if it has one) is the secret."""

    name: str
    literals: tuple[str, ...]
    pattern: str
    goes_on: str  # the characters of a token whose end has not come yet
    longest: int
    before: str = ""  # what has to be in front of the literal


def _plain(name: str, literals: str, letters: str, least: int, most: int = 0, before: str = "") -> Format:
    """A literal and a run of letters; a longer run is something else."""
    most = most or least
    pattern = f"[{letters}]{{{least},{most}}}+(?![{letters}])"
    return Format(name, tuple(literals.split()), pattern, f"[{letters}]*+", most + 1, before)


_ALNUM = "A-Za-z0-9"
_WORD = "A-Za-z0-9_-"
_APART = r"(?:(?<![A-Za-z0-9_-])|(?<=\\[nrt]))"  # or behind a line end as JSON writes it
_HAS_DIGIT = r"(?=[A-Za-z._~+/=-]{0,80}+[0-9])"
_LINE_END = r"(?:\r?\n|\\r\\n|\\n|[ \t])"
_KEY_HEADER = r"[A-Za-z][A-Za-z-]{1,30}+: [^\r\n\\]{0,200}+"
_KEY_LINE = r"[A-Za-z0-9+/]{16,8192}+={0,2}+"

FORMATS = (
    _plain("GitHub", "ghp_ gho_ ghu_ ghs_ ghr_", _ALNUM, 36, 255),
    _plain("GitHub", "github_pat_", "A-Za-z0-9_", 22, 255),
    _plain("GitLab", "glpat- gldt- glrt- glptt- glcbt- glsoat-", _WORD, 20, 300),
    _plain("AWS", "AKIA ASIA", "A-Z0-9", 16),
    Format(
        "AWS",
        ("aws_secret_access_key", "AWS_SECRET_ACCESS_KEY", "SecretAccessKey"),
        r"""["']?\s{0,3}+[=:]\s{0,3}+["']?([A-Za-z0-9/+]{40})(?![A-Za-z0-9/+=])""",
        r"""[\s"'=:A-Za-z0-9/+]*+""",
        60,
    ),
    Format("Slack", ("xox",), r"[a-z](?:\.xox[a-z])?-[A-Za-z0-9-]{10,250}+", "[a-z.A-Z0-9-]*+", 260),
    _plain("Slack", "xapp-", "A-Za-z0-9-", 20, 250),
    _plain("Slack", "hooks.slack.com/services/", "A-Za-z0-9/", 20, 100),
    _plain("Stripe", "sk_live_ rk_live_ sk_test_ rk_test_ whsec_", _ALNUM, 16, 250),
    _plain("Anthropic", "sk-ant-", _WORD, 20, 250),
    _plain("OpenAI", "sk-proj- sk-svcacct- sk-admin- sk-or-v1-", _WORD, 20, 300),
    Format(
        "OpenAI", ("sk-",), r"(?=[A-Za-z]{0,80}+[0-9])[A-Za-z0-9]{20,100}+(?![A-Za-z0-9])", "[A-Za-z0-9]*+", 101, _APART
    ),
    _plain("Google", "AIza", _WORD, 35),
    _plain("Google", "GOCSPX-", _WORD, 24, 40),
    _plain("Google", "ya29.", _WORD, 20, 2000),
    _plain("npm", "npm_", _ALNUM, 36),
    _plain("PyPI", "pypi-AgE", _WORD, 50, 1000),
    Format(
        "JWT",
        ("eyJ",),
        rf"[{_WORD}]{{10,6000}}+\.[{_WORD}]{{10,6000}}+\.[{_WORD}]{{10,2000}}+",
        rf"[.{_WORD}]*+",
        LONGEST,
        _APART,
    ),
    Format(
        "private key",
        ("PRIVATE KEY-----", "PRIVATE KEY BLOCK-----"),
        rf"(?:{_LINE_END})*+((?:(?:{_KEY_HEADER}|{_KEY_LINE})(?:{_LINE_END})*+){{1,400}}+"
        rf"(?:[A-Za-z0-9+/]{{1,15}}+={{0,2}}+(?={_LINE_END}*+-))?(?:=[A-Za-z0-9+/]{{4}})?)",
        r"(?:\s|\\|[A-Za-z][A-Za-z-]{1,30}+: [^\r\n\\]{0,200}+|[A-Za-z][A-Za-z-]{1,30}+:?\Z|[A-Za-z0-9+/=])*+",
        LONGEST,
    ),
    Format(
        "URL",
        ("://",),
        r"""[^\s/@:"'<>`]{0,128}+:[^\s/@"'<>`]{1,256}+(?=@)""",
        r"""[^\s/@"'<>`]*+""",
        400,
        "(?<=[A-Za-z0-9])",
    ),
    Format(
        "bearer",
        ("Bearer ", "bearer ", "BEARER "),
        _HAS_DIGIT + r"[A-Za-z0-9._~+/=-]{16,4096}+",
        "[A-Za-z0-9._~+/=-]*+",
        4097,
    ),
    Format(
        "authorization",
        ("uthorization: ", 'uthorization": "', "uthorization': '", "UTHORIZATION: "),
        r"""(?:[A-Za-z]{3,12}+ )?(?=[^\s"',;0-9=]{0,80}+[0-9=])([^\s"',;]{8,4096}+)""",
        r"""(?:[A-Za-z]{3,12}+ )?[^\s"',;]*+""",
        4120,
    ),
    Format(
        "SendGrid", ("SG.",), rf"[{_WORD}]{{16,32}}+\.[{_WORD}]{{16,64}}+(?![{_WORD}])", rf"[.{_WORD}]*+", 100, _APART
    ),
    _plain("Twilio", "SK", "0-9a-f", 32, before=_APART),
    _plain("Telegram", ":AA", _WORD, 33, before="(?<=[0-9]{8})"),
    _plain("Hugging Face", "hf_", _ALNUM, 30, 40),
    _plain("DigitalOcean", "dop_v1_ doo_v1_ dor_v1_", "a-f0-9", 64),
    Format("Azure", ("AccountKey=", "SharedAccessKey="), r"[A-Za-z0-9+/]{40,88}+={0,2}+", "[A-Za-z0-9+/=]*+", 91),
    _plain("Vault", "hvs. hvb.", _WORD, 24, 300),
    _plain("Shopify", "shpat_ shpss_ shpca_ shppa_", "a-fA-F0-9", 32),
    _plain("Databricks", "dapi", "a-f0-9", 32, before=_APART),
    _plain("Docker", "dckr_pat_", _WORD, 24, 60),
    _plain("Groq", "gsk_", _ALNUM, 40, 80),
    _plain("Linear", "lin_api_", _ALNUM, 32, 60),
    _plain("age", "AGE-SECRET-KEY-1", "0-9A-Z", 58),
)
LITERALS = tuple((literal, format) for format in FORMATS for literal in format.literals)
LONGEST_LITERAL = max(len(literal) for literal, _ in LITERALS)
