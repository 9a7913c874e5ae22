"""`python -m tests.ansible.argument_specs` writes the programs' settings into the roles' specs.

Everything else in a spec is written by hand, and is left as it is.
"""

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import yaml
from pydantic import BeforeValidator, SecretStr
from pydantic.fields import FieldInfo

from broker.settings import BrokerSettings
from nats_logship.app.configuration import ProgramSettings, name_of
from receiver.settings import ReceiverSettings
from receiver.table.settings import TableSettings
from shipper.settings import ShipperSettings

ROLES = Path(__file__).parents[2] / "ansible/roles"
SETTINGS: dict[str, type[ProgramSettings]] = {
    "logship_broker": BrokerSettings,
    "logship_shipper": ShipperSettings,
    "logship_receiver": ReceiverSettings,
    "logship_receiver_table": TableSettings,
}
"""The settings of each variable `<prefix>_settings`, by its prefix."""


class _Indented(yaml.SafeDumper):
    """Lists are indented below their keys, as ansible-lint has them."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, indentless=False)


def role_of(prefix: str) -> str:
    """Return the role that takes variables of a prefix of `SETTINGS`."""
    return prefix.removesuffix("_table")


def spec_path(role: str) -> Path:
    return ROLES / role / "meta/argument_specs.yml"


@cache
def variables() -> frozenset[str]:
    specs = [
        yaml.safe_load(path.read_text("utf-8")) for path in ROLES.glob("*/meta/argument_specs.yml")
    ]
    return frozenset(name for spec in specs for name in spec["argument_specs"]["main"]["options"])


def is_secret(field: FieldInfo) -> bool:
    """Whether a setting is kept from everybody's eyes."""
    return SecretStr in _within(field.annotation)


def described(field: FieldInfo) -> dict[str, Any]:
    kinds = list(_within(field.annotation))
    spec: dict[str, Any] = {"description": str(field.description)}
    if dict in kinds:
        spec["type"] = "dict"
    elif tuple in kinds:
        spec |= {"type": "list", "elements": "str"}
    elif bool in kinds:
        spec["type"] = "bool"
    elif int in kinds and not _reads_text(kinds + field.metadata):
        spec["type"] = "int"
    else:
        spec["type"] = "str"
    if choices := [kind for kind in kinds if isinstance(kind, str)]:
        spec["choices"] = choices
    return spec


def renewed(role: str) -> str:
    """Return the text of a role's spec with the settings as they are now."""
    spec = yaml.safe_load(spec_path(role).read_text("utf-8"))
    options = spec["argument_specs"]["main"]["options"]
    for prefix in (one for one in SETTINGS if role_of(one) == role):
        fields = SETTINGS[prefix].model_fields
        keys = {name_of(name): field for name, field in sorted(fields.items())}
        options[f"{prefix}_settings"]["options"] = {
            key: described(field) for key, field in keys.items() if not is_secret(field)
        }
        if secrets := options.get(f"{prefix}_secrets"):
            secrets["options"] = {
                key: {**described(field), "no_log": True}
                for key, field in keys.items()
                if is_secret(field)
            }
    text = yaml.dump(spec, Dumper=_Indented, sort_keys=False, width=110, allow_unicode=True)
    return f"---\n{text}"


def _reads_text(kinds: list[Any]) -> bool:
    return any(isinstance(kind, BeforeValidator) for kind in kinds)  # a size such as 1MiB


def _within(annotation: object) -> Iterator[object]:
    if get_origin(annotation) is Literal:
        yield from get_args(annotation)
        return
    yield get_origin(annotation) or annotation
    for part in get_args(annotation):
        if get_origin(annotation) is not tuple:
            yield from _within(part)


if __name__ == "__main__":
    for _role in {*map(role_of, SETTINGS)}:
        spec_path(_role).write_text(renewed(_role), "utf-8")
