"""`tidegate doctor CONFIG`: looks at all that a router stands on, from where it would run, and says of each whether it holds.

Nothing is started and nothing is changed. Each check has its line; the command fails when one of them does.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import grpc
import psycopg
from cryptography import x509
from redis.asyncio import Redis
from redis.exceptions import RedisError
from tidegate.parser import Parser
from tritonclient.grpc.service_pb2 import ModelConfigRequest
from tritonclient.grpc.service_pb2_grpc import GRPCInferenceServiceStub

from router.auth.assemble import build_key_hash, build_key_set
from router.auth.fetch import Fetcher
from router.auth_config import Issuer
from router.config import Config, ConfigInvalid, load_config
from router.errors import TidegateError
from router.text.tokenizer import InvalidModel, Tokenizer
from router.upstream import contract, stock
from router.upstream.access import Access
from router.upstream.link import LinkBroken

PATIENCE_S = 5.0
_MOST_SKEW_S = 2.0
_SOON_S = 14 * 86_400


class Sick(Exception):
    """What does not hold, and what to do."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One check's outcome."""

    subject: str
    holds: bool
    words: str

    def __str__(self) -> str:
        return f"{'ok    ' if self.holds else 'FAILED'} {self.subject}: {self.words}"


_TROUBLES = (Sick, OSError, ValueError, RedisError, psycopg.Error, grpc.RpcError, TidegateError, LinkBroken, InvalidModel, TimeoutError)


async def examine(config: Config) -> AsyncIterator[Finding]:
    """All findings, one after the other."""
    for subject, check in list_checks(config):
        try:
            async with asyncio.timeout(PATIENCE_S):
                words = await check()
            yield Finding(subject, True, words)
        except _TROUBLES as error:
            yield Finding(subject, False, _describe(error))


def list_checks(config: Config) -> Iterator[tuple[str, Callable[[], Awaitable[str]]]]:
    """What is to be looked at, by name."""
    for model in config.models:
        yield f"model {model.name}", partial(_check_model, model.path)
        for address in model.workers:
            yield f"worker {address}", partial(_check_worker, config, address)
    yield "pepper", partial(_check_pepper, config)
    if dsn := config.store.dsn.get_secret_value():
        yield "database", partial(_check_database, dsn, config)
        yield "clock", partial(_check_clock, dsn)
    if url := config.quota.redis.get_secret_value():
        yield "Redis", partial(_check_redis, url)
    for path in _list_certificates(config):
        yield f"certificate {path}", partial(_check_certificate, path)
    for issuer in config.auth.issuers:
        yield f"issuer {issuer.url}", partial(_check_issuer, issuer)


async def _check_model(folder: Path) -> str:
    tokenizer = await asyncio.to_thread(Tokenizer.load, folder)
    return f"{tokenizer.vocab_size} token ids, a context of {tokenizer.context}"


async def _check_worker(config: Config, address: str) -> str:
    async with Access(config.worker_link).connect(address) as channel:
        request = ModelConfigRequest(name=contract.MODEL)
        told = (await GRPCInferenceServiceStub(channel).ModelConfig(request, timeout=PATIENCE_S)).config
    if contract.is_lane_model(told):
        return "Tidegate's own model"
    if stock.is_stock(told):
        return "TensorRT-LLM's own model"
    raise Sick(f"its model {contract.MODEL} is neither Tidegate's nor TensorRT-LLM's with decoupled responses")


async def _check_pepper(config: Config) -> str:
    return f"known by the name {build_key_hash(config.store.folder).pepper}"


async def _check_database(dsn: str, config: Config) -> str:
    names = build_key_hash(config.store.folder).names
    async with await psycopg.AsyncConnection.connect(dsn) as connection:
        found = await (await connection.execute("SELECT to_regclass('peppers') IS NOT NULL")).fetchone()
        if not (found and found[0]):
            return "reached; it has no tables yet, which the first router makes"
        known = [row[0] for row in await (await connection.execute("SELECT name FROM peppers")).fetchall()]
    if known and set(known).isdisjoint(names):
        raise Sick(f"its keys are hashed under the pepper {known[0]}, not this router's: set TIDEGATE_KEY_PEPPER as at the others")
    return "reached, and its keys are hashed under this router's pepper"


async def _check_clock(dsn: str) -> str:
    async with await psycopg.AsyncConnection.connect(dsn) as connection:
        before = time.time()
        told = await (await connection.execute("SELECT extract(epoch FROM clock_timestamp())::float8")).fetchone()
        off = (float(told[0]) if told else 0.0) - (before + time.time()) / 2
    if abs(off) > _MOST_SKEW_S:
        raise Sick(f"it differs from the database's by {off:.1f} s: keys and tokens expire by it")
    return f"within {_MOST_SKEW_S:g} s of the database's"


async def _check_redis(url: str) -> str:
    async with Redis.from_url(url) as redis:
        role, memory = (await redis.info("replication")).get("role"), await redis.info("memory")
    if role != "master":
        raise Sick(f"it is a {role}, which takes no writes: name the one that does")
    if (policy := memory.get("maxmemory_policy", "noeviction")) != "noeviction":
        raise Sick(f"maxmemory-policy is {policy}: it may forget what was counted; set noeviction")
    return "reached, and it forgets nothing"


def _list_certificates(config: Config) -> Iterator[Path]:
    tls, link = config.tls, config.worker_link
    found = [*((tls.certificate, tls.client_ca) if tls else ()), link.ca, link.certificate]
    yield from filter(None, found)


async def _check_certificate(path: Path) -> str:
    certificate = x509.load_pem_x509_certificate(await asyncio.to_thread(path.read_bytes))
    left_s = (certificate.not_valid_after_utc - datetime.now(UTC)).total_seconds()
    if left_s < 0:
        raise Sick(f"it has expired at {certificate.not_valid_after_utc:%Y-%m-%d %H:%M}")
    return f"valid until {certificate.not_valid_after_utc:%Y-%m-%d}" + (", which is soon" if left_s < _SOON_S else "")


async def _check_issuer(issuer: Issuer) -> str:
    executor = ThreadPoolExecutor(1)
    keys = build_key_set(issuer, Fetcher(executor).fetch)
    try:
        await keys.find("")
        return "its keys were fetched"
    finally:
        await keys.close()
        executor.shutdown(wait=False)


def _describe(error: BaseException) -> str:
    if isinstance(error, grpc.aio.AioRpcError):
        return f"{error.code().name}: {error.details()}"
    if isinstance(error, TidegateError):
        return error.message
    return " ".join(str(error).split()) or type(error).__name__


async def _run(config: Config) -> int:
    sick = 0
    async for finding in examine(config):
        print(finding, flush=True)
        sick += not finding.holds
    print(f"{sick} of these must be mended" if sick else "all of this holds")
    return 1 if sick else 0


def main(argv: Sequence[str] | None = None) -> int:
    """Returns the process's exit code: 1 when something does not hold, 2 for a bad configuration."""
    parser = Parser(prog="tidegate doctor", description="Look at all that a router stands on.")
    parser.add_argument("config", type=Path, help="the router's TOML file")
    try:
        return asyncio.run(_run(load_config(parser.parse_args(argv).config)))
    except ConfigInvalid as error:
        print(f"FAILED configuration: {error}", file=sys.stderr)
        return 2
