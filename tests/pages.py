"""Pages that programs serve, as scrapers, load balancers and people get them."""

import re
import urllib.error
import urllib.request

from prometheus_client.parser import text_string_to_metric_families

from tests.support.processes import Process


def fetch(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, timeout=60) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def page(program: Process, path: str) -> tuple[int, str]:
    """Return the code and the text of a page of a program that has said where it listens."""
    found = re.search(r"listening on (http://\S+)", program.read_log())
    assert found
    return fetch(f"{found[1]}{path}")


def samples(metrics: str) -> dict[str, float]:
    """Return the values of a metrics page by name and label values, `|` between them."""
    return {
        sample.name + "".join(f"|{value}" for value in sample.labels.values()): sample.value
        for family in text_string_to_metric_families(metrics)
        for sample in family.samples
    }
