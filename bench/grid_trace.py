"""Reads the LCG jobs and the Grid'5000 outages, and draws from them what one run of `bench grid` replays. Runs nothing.

Nothing is invented but when outages happen: jobs come when, where and for as long as they were recorded, thinned by the seed;
outages are recorded ones of the sites, as long as they were, each site in turn. In the record there are months between two of
most sites. The nine sites of Grid'5000, by size, stand for the nine sites of LCG that were given most jobs. Called by
bench/grid.py.
"""

from __future__ import annotations

import gzip
import lzma
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Final, NamedTuple

from bench.traces import traces_folder

GONE: Final = 0.8  # of a site's nodes: then the site counts as gone, and not some of its nodes
SHORTEST_S: Final = 60.0  # of outages of a site; a reboot of all is no loss to recover from
SHORTEST_NODE_S: Final = 30.0
DOWN: Final = "0"


class Job(NamedTuple):
    at_s: float
    run_s: float
    tenant: str  # the virtual organisation
    region: str  # the site it was sent to
    name: str = ""


class Outage(NamedTuple):
    at_s: float
    for_s: float
    region: str
    node: int | None = None  # None: the whole site


class Draw(NamedTuple):
    """What one run replays; both ways of running it replay the same."""

    jobs: tuple[Job, ...]
    outages: tuple[Outage, ...]
    tenants: tuple[str, ...]
    regions: tuple[str, ...]


def region_name(rank: int) -> str:
    return f"site-{rank + 1}"


def _file(*path: str) -> Path:
    found = traces_folder().joinpath(*path)
    if not found.exists():
        raise SystemExit(f"the trace file {found} is not there; set FAIRLEAD_TRACES to the folder of traces")
    return found


# --- jobs ------------------------------------------------------------------------------------------------------------------


def read_jobs(regions: int) -> list[Job]:
    """Of the sites that were given most, in the order in which they were submitted. Fields as SWF numbers them from one:
    2 submitted, 4 run time, 13 group, 16 partition."""
    with gzip.open(_file("lcg_grid_2005", "LCG.swf.gz"), "rt") as lines:
        rows = [line.split() for line in lines if line.strip() and not line.startswith(";")]
    sites = [site for site, _ in Counter(row[15] for row in rows).most_common(regions)]
    rank = {site: region_name(number) for number, site in enumerate(sites)}
    jobs = [Job(float(r[1]), float(r[3]), f"vo-{r[12]}", rank[r[15]]) for r in rows if r[15] in rank and float(r[3]) > 0]
    return sorted(jobs)


def draw_jobs(jobs: Sequence[Job], count: int, within_s: float, random: Random) -> list[Job]:
    """A stretch of the record, thinned to so many. It begins where the seed says, on a stretch that has enough."""
    last = jobs[-1].at_s - within_s
    for _ in range(100):
        begin_s = random.uniform(jobs[0].at_s, max(jobs[0].at_s, last))
        there = [job for job in jobs if begin_s <= job.at_s < begin_s + within_s]
        if len(there) >= count:
            break
    chosen = sorted(random.sample(there, min(count, len(there))))
    return [job._replace(at_s=job.at_s - begin_s, name=f"j{number}") for number, job in enumerate(chosen)]


# --- outages ---------------------------------------------------------------------------------------------------------------


class Down(NamedTuple):
    site: str
    node: str
    begin_s: float
    end_s: float


def read_downs(regions: int) -> dict[str, list[Down]]:
    """By site, the largest first, when which node was not there."""
    nodes: dict[str, set[str]] = defaultdict(set)
    found: dict[str, list[Down]] = defaultdict(list)
    with lzma.open(_file("grid5000_failures", "event_trace.tab.xz"), "rt") as lines:
        for line in lines:
            row = line.split()
            if line.startswith("#") or len(row) < 8:
                continue
            _, site, *_ = row[4].split("/")
            nodes[site].add(row[4])
            if row[5] == DOWN:
                found[site].append(Down(site, row[4], float(row[6]), float(row[7])))
    largest = sorted(nodes, key=lambda site: (-len(nodes[site]), site))[:regions]
    return {site: found[site] for site in largest}


def gone(downs: Iterable[Down], nodes: int) -> Iterator[tuple[float, float]]:
    """From when to when almost all nodes of a site were away at once."""
    moves = sorted(move for down in downs if down.end_s > down.begin_s for move in ((down.begin_s, 1), (down.end_s, -1)))
    away, since_s = 0, None
    for at_s, by in moves:
        away += by
        if away >= GONE * nodes and since_s is None:
            since_s = at_s
        elif away < GONE * nodes and since_s is not None:
            yield since_s, at_s
            since_s = None


class Downtimes(NamedTuple):
    sites: dict[str, list[float]]  # how long each outage of a region was, in order
    nodes: list[tuple[float, str, int]]  # length, region, the node's number


def downtimes(downs: dict[str, list[Down]]) -> Downtimes:
    sites: dict[str, list[float]] = {}
    single: list[tuple[float, str, int]] = []
    for rank, found in enumerate(downs.values()):
        names = {name: number for number, name in enumerate(sorted({down.node for down in found}))}
        lengths = [end - begin for begin, end in gone(found, len(names))]
        sites[region_name(rank)] = [length_s for length_s in lengths if length_s >= SHORTEST_S]
        single += [
            (down.end_s - down.begin_s, region_name(rank), names[down.node])
            for down in found
            if down.end_s - down.begin_s >= SHORTEST_NODE_S
        ]
    return Downtimes(sites, single)


class Rates(NamedTuple):
    sites: int  # outages of whole sites
    nodes: int  # of single nodes
    first_s: float  # when the first begins
    last_s: float  # when the last begins
    longest_s: float  # outages that were longer end there
    nodes_each: int  # nodes a region has here


def draw_outages(found: Downtimes, rates: Rates, random: Random) -> list[Outage]:
    """One site after the other, evenly over the run, each for as long as it once was; and single nodes at any time between."""
    turns = [region for region, lengths in found.sites.items() if lengths]
    random.shuffle(turns)
    every_s = (rates.last_s - rates.first_s) / max(1, rates.sites)
    out: list[Outage] = []
    for number in range(rates.sites if turns else 0):
        region = turns[number % len(turns)]
        length_s = random.choice(found.sites[region])
        out.append(Outage(round(rates.first_s + number * every_s, 1), min(length_s, rates.longest_s), region))
    for length_s, region, node in random.sample(found.nodes, min(rates.nodes, len(found.nodes))):
        at_s = round(random.uniform(rates.first_s, rates.last_s), 1)
        out.append(Outage(at_s, min(length_s, rates.longest_s), region, node % rates.nodes_each))
    return sorted(out, key=lambda o: (o.at_s, o.region, -1 if o.node is None else o.node))


def draw(seed: int, regions: int, jobs: int, within_s: float, rates: Rates) -> Draw:
    random = Random(seed)
    chosen = draw_jobs(read_jobs(regions), jobs, within_s, random)
    outages = draw_outages(downtimes(read_downs(regions)), rates, random)
    tenants = sorted({job.tenant for job in chosen})
    return Draw(tuple(chosen), tuple(outages), tuple(tenants), tuple(region_name(rank) for rank in range(regions)))
