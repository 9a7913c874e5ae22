"""The accounts in the configuration of nats-server: values in, text out."""

from collections.abc import Iterable, Iterator, Sequence

from broker.auth.accounts import SYS, Account, Accounts, Crossing, CrossingKind, User
from broker.auth.permissions import API, SubjectRights
from broker.server.conf_text import quoted

__all__ = ["render_accounts"]

_FORGOTTEN = "60s"
"""How long a question with several answers is remembered without one: longer than any pull waits."""


def render_accounts(accounts: Accounts) -> list[str]:
    """Return the lines of the accounts, the system account and who comes in without a proof."""
    return [
        f"system_account: {SYS}",
        *([f"no_auth_user: {quoted(accounts.anybody)}"] if accounts.anybody else []),
        "accounts {",
        *(f"  {line}" for one in accounts.accounts for line in _account(one, accounts.crossings)),
        "}",
    ]


def _account(account: Account, crossings: Sequence[Crossing]) -> Iterator[str]:
    yield f"{account.name} {{"
    if account.has_jetstream:
        yield "  jetstream: enabled"
        # whoever has a credential names the API so, also at a broker that is open yet
        yield f'  mappings: {{ "{API}.>": "$JS.API.>" }}'
    if account.limits:
        yield "  limits {"
        yield f"    max_connections: {account.limits.connections}"
        yield f"    max_subscriptions: {account.limits.subscriptions}"
        yield "  }"
    yield from _listed("exports", _exports([one for one in crossings if one.of == account.name]))
    yield from _listed("imports", [_import(one) for one in crossings if one.into == account.name])
    yield from _listed("users", [_user(user) for user in account.users])
    yield "}"


def _listed(name: str, entries: Iterable[str]) -> list[str]:
    lines = [f"    {entry}" for entry in entries]
    return [f"  {name}: [", *lines, "  ]"] if lines else []


def _exports(crossings: Sequence[Crossing]) -> Iterator[str]:
    for subject in dict.fromkeys(one.subject for one in crossings):
        same = [one for one in crossings if one.subject == subject]
        into = ", ".join(one.into for one in same)
        yield f"{{ {_kind(same[0])}: {quoted(subject)}, {_answers(same[0])}accounts: [{into}] }}"


def _answers(crossing: Crossing) -> str:
    if crossing.traffic is not CrossingKind.QUESTIONS:
        return ""
    return f'response_type: "stream", threshold: "{_FORGOTTEN}", '


def _import(crossing: Crossing) -> str:
    whence = f"{{ account: {crossing.of}, subject: {quoted(crossing.subject)} }}"
    renamed = f", to: {quoted(crossing.local)}" if crossing.local != crossing.subject else ""
    return f"{{ {_kind(crossing)}: {whence}{renamed} }}"


def _kind(crossing: Crossing) -> str:
    return "stream" if crossing.traffic is CrossingKind.MESSAGES else "service"


def _user(user: User) -> str:
    return f"{{ nkey: {quoted(user.nkey)}{_connections(user)}{_permissions(user.permissions)} }}"


def _connections(user: User) -> str:
    if user.is_server:
        return ', allowed_connection_types: ["LEAFNODE"]'
    if user.permissions is None:
        return ""
    return (
        ', allowed_connection_types: ["STANDARD"]'  # whoever has rights of its own is no other site
    )


def _permissions(permissions: SubjectRights | None) -> str:
    if permissions is None:
        return ""
    publish, subscribe = _subjects(permissions.publish), _subjects(permissions.subscribe)
    responds = ", allow_responses: true" if permissions.responds else ""
    return (
        f", permissions: {{ publish: {{ allow: {publish} }}, subscribe: {{ allow: {subscribe} }}"
        f"{responds} }}"
    )


def _subjects(subjects: Sequence[str]) -> str:
    return f"[{', '.join(map(quoted, subjects))}]"
