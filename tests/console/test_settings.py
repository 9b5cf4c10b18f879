import pytest

from penstock.console.running import settings_of
from penstock.errors import PenstockError


@pytest.mark.parametrize(
    "pair", ["join_memory=20 KB", "join_memory = '20 KB'", "join_memory='20 KB'"]
)
def test_a_value_may_be_quoted_as_in_set(pair: str) -> None:
    assert settings_of([pair]) == {"join_memory": "20 KB"}


@pytest.mark.parametrize("pair", ["join_memory", "=20 KB", "join_memory='", "join_memory='20 KB"])
def test_what_is_no_setting_is_refused(pair: str) -> None:
    with pytest.raises(PenstockError):
        settings_of([pair])
