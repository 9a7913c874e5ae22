"""A cluster that gives no executor is told of, and given up."""

import asyncio

import pytest

from broker.app.exits import OperatorError
from receiver.driver.jobs import watch
from receiver.spark.session import spark_context
from tests.receiver.apart import apart

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]


def watched() -> str:
    with spark_context("local[1]") as spark:  # which has no executors
        try:
            asyncio.run(watch(spark, 0.3, 0.3))
        except OperatorError as error:
            return str(error)


@pytest.mark.long
def test_a_cluster_without_executors_for_long_ends_the_receiver() -> None:
    assert "has had no executor for us for 0.3 s; start again" in apart(watched)
