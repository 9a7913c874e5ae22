"""Find words of the old vocabulary; `[tool.words]` in pyproject.toml lists them and better ones.

`python -m tests.words [PATH...]` prints every place where one is, by default in all files that git
knows, and ends with 1 if there are any. In Python it reads names, comments and strings.
"""

import ast
import io
import re
import subprocess
import sys
import tokenize
import tomllib
from collections.abc import Iterator
from pathlib import Path

_PAGES = {".md", ".yml", ".j2", ".html", ".js", ".service", ".conf"}
_NAMED = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


class Words:
    """The words that are gone: a pattern for text, with what to write, and parts of names."""

    def __init__(self, table: dict[str, dict[str, str]]) -> None:
        self._text = [
            (re.compile(rf"(?<![\w-])(?:{pattern})(?![\w-])", re.IGNORECASE), instead)
            for pattern, instead in table["text"].items()
        ]
        self._names = table["names"]

    def find_in(self, text: str) -> Iterator[tuple[int, str]]:
        """Yield the line, counted from 0, of every such word in a text, and what is to be said."""
        for pattern, instead in self._text:
            for found in pattern.finditer(text):
                line = text.count("\n", 0, found.start())
                yield line, f"`{' '.join(found[0].split())}`: write {instead}"

    def find_in_name(self, name: str) -> Iterator[str]:
        """Yield what is to be said of a name."""
        for part in re.findall(r"[a-z]+", re.sub(r"([A-Z])", r" \1", name).lower()):
            if part in self._names:
                yield f"name `{name}`: write {self._names[part]} instead of `{part}`"


def check_python(source: str, words: Words) -> Iterator[tuple[int, str]]:
    """Yield the line, counted from 0, of each such word in names, comments and strings."""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type in (tokenize.COMMENT, tokenize.STRING):
            for line, text in words.find_in(token.string):
                yield token.start[0] - 1 + line, text
    for node in ast.walk(ast.parse(source)):
        name = (
            node.name if isinstance(node, _NAMED) else node.arg if isinstance(node, ast.arg) else ""
        )
        for text in words.find_in_name(name):
            yield node.lineno - 1, text  # type: ignore[attr-defined]


def check(path: Path, words: Words) -> Iterator[tuple[int, str]]:
    """Yield the line, counted from 0, of every such word in a file and in its name."""
    source = path.read_text("utf-8")
    yield from ((0, text) for text in words.find_in_name(path.stem))
    yield from check_python(source, words) if path.suffix == ".py" else words.find_in(source)


def main() -> int:
    """Check the files that are given, or all."""
    table = tomllib.loads(Path("pyproject.toml").read_text("utf-8"))["tool"]["words"]
    listed = subprocess.run(
        ["git", "ls-files", "-z", *(sys.argv[1:] or table["paths"])],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split("\0")
    paths = [Path(name) for name in listed if name and Path(name).suffix in {".py", *_PAGES}]
    words = Words(table)
    found = [
        f"{path}:{line + 1}: {text}"
        for path in paths
        if path.exists()
        for line, text in sorted(set(check(path, words)))
    ]
    sys.stdout.writelines(f"{line}\n" for line in found)
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
