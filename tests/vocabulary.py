"""`python -m tests.vocabulary [PATH...]` prints terms of `[tool.vocabulary]`, and ends with 1.

In names, comments, messages and pages; by default of all files that git knows.
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


class Vocabulary:
    """The terms: patterns for text, and parts of names, each with a better term."""

    def __init__(self, table: dict[str, dict[str, str]]) -> None:
        self._text = [
            (re.compile(rf"(?<![\w-])(?:{pattern})(?![\w-])", re.IGNORECASE), instead)
            for pattern, instead in table["text"].items()
        ]
        self._names = table["names"]

    def find_in(self, text: str) -> Iterator[tuple[int, str]]:
        """Yield the line, counted from 0, of each such term in a text, and a finding."""
        for pattern, instead in self._text:
            for found in pattern.finditer(text):
                line = text.count("\n", 0, found.start())
                yield line, f"`{' '.join(found[0].split())}`: write {instead}"

    def find_in_name(self, name: str) -> Iterator[str]:
        """Yield a finding for each part of a name that is such a term."""
        for part in re.findall(r"[a-z]+", re.sub(r"([A-Z])", r" \1", name).lower()):
            if part in self._names:
                yield f"name `{name}`: write {self._names[part]} instead of `{part}`"


def check_python(source: str, vocabulary: Vocabulary) -> Iterator[tuple[int, str]]:
    """Yield the line, counted from 0, of each such term in a module, and a finding."""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type in (tokenize.COMMENT, tokenize.STRING):
            for line, text in vocabulary.find_in(token.string):
                yield token.start[0] - 1 + line, text
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, (*_NAMED, ast.arg)):
            name = node.arg if isinstance(node, ast.arg) else node.name
            yield from ((node.lineno - 1, text) for text in vocabulary.find_in_name(name))


def check(path: Path, vocabulary: Vocabulary) -> Iterator[tuple[int, str]]:
    """Yield the line, counted from 0, of each such term in a file or its name."""
    source = path.read_text("utf-8")
    yield from ((0, text) for text in vocabulary.find_in_name(path.stem))
    yield from (
        check_python(source, vocabulary) if path.suffix == ".py" else vocabulary.find_in(source)
    )


def main() -> int:
    table = tomllib.loads(Path("pyproject.toml").read_text("utf-8"))["tool"]["vocabulary"]
    command = ["git", "ls-files", "-z", *(sys.argv[1:] or table["paths"])]
    listed = subprocess.check_output(command, text=True).split("\0")
    paths = [Path(name) for name in listed if name and Path(name).suffix in {".py", *_PAGES}]
    vocabulary = Vocabulary(table)
    found = [
        f"{path}:{line + 1}: {text}"
        for path in paths
        if path.exists()
        for line, text in sorted(set(check(path, vocabulary)))
    ]
    sys.stdout.writelines(f"{line}\n" for line in found)
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
