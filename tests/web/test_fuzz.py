"""Requests made up from the API's own document: whatever comes, the server answers, and never with a 5xx."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable

from tests.web.support import Page, ended, serving

EXAMPLES = 6  # of each operation


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    # `ask`: what is made up is never run.
    with serving(str(tmp_path_factory.mktemp("fuzz") / "state"), "--policy", "ask", OUTLAST_APPROVAL_WAIT_S="0") as one:
        yield one


def test_no_request_of_the_document_is_answered_with_a_5xx(page: Page) -> None:
    schema: Any = schemathesis.openapi.from_dict(page.get("/openapi.json"))
    seen: dict[str, set[int]] = {}
    for found in schema.get_all_operations():
        operation = found.ok()
        if "text/event-stream" in str(operation.definition.raw["responses"]["200"]):
            continue
        try_one(page, operation, seen.setdefault(operation.label, set()))
    assert len(seen) >= 18
    assert not [one for codes in seen.values() for one in codes if one >= 500], seen
    # It is a test of more than refusals.
    assert sum(1 for codes in seen.values() if 200 in codes) >= 6, seen
    assert page.get("/api/tasks")["total"] == 0


def try_one(page: Page, operation: Any, codes: set[int]) -> None:
    session = requests.Session()
    for mode in (schemathesis.GenerationMode.POSITIVE, schemathesis.GenerationMode.NEGATIVE):

        @settings(
            max_examples=EXAMPLES,
            deadline=None,
            database=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(case=operation.as_strategy(generation_mode=mode))
        def send(case: Any) -> None:
            answer = case.call(base_url=f"http://{page.host}", headers=page.bearer, session=session, timeout=20)
            codes.add(answer.status_code)
            assert answer.status_code < 500, (answer.status_code, answer.text, case.as_curl_command())
            assert answer.status_code == 200 or "application/json" in answer.headers["content-type"][0]

        try:
            send()
        except Unsatisfiable:
            assert mode == schemathesis.GenerationMode.NEGATIVE  # nothing in it can be wrong


def test_real_ids_are_fuzzed_too(page: Page, tmp_path_factory: pytest.TempPathFactory) -> None:
    with serving(str(tmp_path_factory.mktemp("real") / "state")) as one:
        task_id = one.start("seq 100")
        ended(one, task_id)
        for path in ("lines", "search", "log", "first-error", "screen"):
            for query in ("", "?from=99999999999", "?from=-1&count=2000", "?q=%00", "?q=%ED%A0%80", "?stream=stderr"):
                code = one.request("GET", f"/api/tasks/{task_id}/{path}{query}", one.bearer)[0]
                assert code in (200, 400, 409), (path, query, code)
