import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.app.tomllines import lines_of_keys


def test_a_key_is_found_where_it_stands_and_not_where_its_name_is_part_of_a_value() -> None:
    text = '''\
# max_age = 1
listen = """
max_age = 2
[max_age]
"""
server = [
  "max_age = 3",  # max_age = 4
]
"max_age" = 5

[table]
max_bytes = 6
'''

    assert lines_of_keys(text) == {"listen": 2, "server": 6, "max_age": 9, "table": 11}


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_a_dotted_key_counts_where_it_is_written_first(newline: str) -> None:
    assert lines_of_keys(newline.join(["a.b = 1", "", "a.c = 2", "[d.e]", "[d]"])) == {
        "a": 1,
        "d": 4,
    }


values = st.sampled_from(
    ["1", "'x'", '"""\nb = 2\n"""', "[\n1,\n[2],\n]", "{b = 1}", "'''\n[b]'''"]
)
keys = st.lists(st.sampled_from(["a", "b", '"c d"', "'e'", "f.g"]), unique=True)


@given(keys, st.data())
def test_every_key_of_a_valid_text_has_the_line_on_which_it_was_written(
    names: list[str], data: st.DataObject
) -> None:
    text, expected = "", {}
    for name in names:
        text += data.draw(st.sampled_from(["", "\n", "# b = 1\n"]))
        (key,) = tomllib.loads(f"{name} = 1")
        expected[key] = text.count("\n") + 1
        text += f"{name} = {data.draw(values)}\n"

    assert lines_of_keys(text) == expected
