"""On a system that Outlast cannot run on, one sentence says so."""

from __future__ import annotations

import pytest

from outlast import OutlastError, Shell


@pytest.mark.parametrize("platform", ["win32", "darwin"])
def test_another_system_is_refused_in_one_sentence(platform: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.platform", platform)
    with pytest.raises(OutlastError) as refused:
        Shell.open()
    assert refused.value.code == "unsupported"
    assert refused.value.message.startswith("Outlast needs Linux")
    assert "WSL" in refused.value.message
