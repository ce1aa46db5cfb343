"""A page of metrics, gathered from plain numbers at the moment it is asked for. The only door to the metrics library.

Owns the shape: a sample that is not in fairlead/observe/metrics.py, or has other labels than it says there, is a bug. Nothing is
counted here: whoever counts keeps plain ints and Histograms. `render` takes some 10 us a series, so servers call it off the loop.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from fairlead.observe.histogram import Histogram
from fairlead.observe.metrics import METRICS

CONTENT_TYPE: Final = CONTENT_TYPE_LATEST

_Family = CounterMetricFamily | GaugeMetricFamily | HistogramMetricFamily
_FAMILIES: Final = {"counter": CounterMetricFamily, "gauge": GaugeMetricFamily, "histogram": HistogramMetricFamily}


class Page:
    def __init__(self) -> None:
        self._families: dict[str, _Family] = {}

    def put(self, name: str, value: float, /, **labels: str) -> None:
        family = self._family(name, labels)
        assert not isinstance(family, HistogramMetricFamily), f"{name} is a histogram"
        family.add_metric(_in_order(name, labels), value)

    def histogram(self, name: str, histogram: Histogram, /, **labels: str) -> None:
        family = self._family(name, labels)
        assert isinstance(family, HistogramMetricFamily), f"{name} is no histogram"
        family.add_metric(_in_order(name, labels), histogram.buckets(), histogram.sum)

    def announce(self, *names: str) -> None:
        """Families that are told of even while they have no sample."""
        for name in names:
            self._family(name, dict.fromkeys(METRICS[name].labels, ""))

    def _family(self, name: str, labels: dict[str, str]) -> _Family:
        row = METRICS[name]
        assert labels.keys() == set(row.labels), f"{name} has the labels {row.labels}, not {sorted(labels)}"
        family = self._families.get(name)
        if family is None:
            family = self._families[name] = _FAMILIES[row.type](row.full, row.meaning, labels=row.labels)
        return family

    def collect(self) -> Iterator[Metric]:
        """For the library's registry."""
        yield from self._families.values()

    def render(self) -> bytes:
        registry = CollectorRegistry(auto_describe=False)
        registry.register(self)
        return generate_latest(registry)


def _in_order(name: str, labels: dict[str, str]) -> list[str]:
    return [labels[label] for label in METRICS[name].labels]
