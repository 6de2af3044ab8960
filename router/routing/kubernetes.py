"""The ready pods of a Kubernetes service, from its EndpointSlices: listed once, then watched, over the API server's plain HTTPS.

    GET /apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices?labelSelector=kubernetes.io/service-name={service}
    … &watch=true&resourceVersion={of the list}    one JSON object a line: ADDED, MODIFIED, DELETED, BOOKMARK, ERROR

The server ends a watch after a while, and it is begun again where it ended. When it says that this place is too old (410), or anything else
is wrong, the source fails and is listed anew. The pod's service account needs `list` and `watch` on `endpointslices`.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp

from router.routing.discovery import Addresses, DiscoveryFailed, join_address, keep_one_family

_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_WATCH_S = 300
_ANSWER_S = 10.0
_AGAIN_S = 0.5
_LINE_BYTES = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class ApiServer:
    """Where the API server is, the authority that signed its certificate, and the token that proves who asks: a file that is renewed."""

    url: str
    token: Path
    authority: Path

    def read_headers(self) -> Mapping[str, str]:
        """Raises DiscoveryFailed."""
        try:
            return {"authorization": f"Bearer {self.token.read_text().strip()}"}
        except OSError as error:
            raise DiscoveryFailed(f"{self.token}: {type(error).__name__}") from error


def find_api_server(environment: Mapping[str, str], account: Path = _ACCOUNT) -> ApiServer:
    """The API server of the cluster this runs in, as Kubernetes tells its pods. Raises DiscoveryFailed outside of one."""
    try:
        host, port = environment["KUBERNETES_SERVICE_HOST"], int(environment["KUBERNETES_SERVICE_PORT"])
    except (KeyError, ValueError) as error:
        raise DiscoveryFailed("this is no pod of a Kubernetes cluster") from error
    return ApiServer(f"https://{join_address(host, port)}", account / "token", account / "ca.crt")


class EndpointSlices:
    """Source of the pods of `service`; `port` is the name or number of the port to use."""

    def __init__(self, server: ApiServer, namespace: str, service: str, port: str) -> None:
        self.name = f"{service}.{namespace}"
        self._server = server
        self._url = f"{server.url}/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices"
        self._query = {"labelSelector": f"kubernetes.io/service-name={service}"}
        self._port = port

    async def watch(self) -> AsyncGenerator[Addresses, None]:
        """See Source."""
        try:
            async with self._connect() as session:
                slices, version = await self._list(session)
                yield self._merge(slices)
                while True:
                    async for event in self._follow(session, version):
                        version = _apply(event, slices)
                        if event["type"] != "BOOKMARK":
                            yield self._merge(slices)
                    await asyncio.sleep(_AGAIN_S)
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError, KeyError, TypeError) as error:
            raise DiscoveryFailed(type(error).__name__) from error

    def _connect(self) -> aiohttp.ClientSession:
        trust = ssl.create_default_context(cafile=self._server.authority)
        return aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=trust), read_bufsize=_LINE_BYTES)

    async def _list(self, session: aiohttp.ClientSession) -> tuple[dict[str, Any], str]:
        """The slices by name, and the version they have together."""
        async with self._get(session, {}, _ANSWER_S) as response:
            found = json.loads(await response.content.read())
        return {item["metadata"]["name"]: item for item in found["items"]}, found["metadata"]["resourceVersion"]

    async def _follow(self, session: aiohttp.ClientSession, version: str) -> AsyncIterator[Mapping[str, Any]]:
        """Events since a version, until the server ends the watch."""
        query = {"watch": "true", "resourceVersion": version, "allowWatchBookmarks": "true", "timeoutSeconds": str(_WATCH_S)}
        async with self._get(session, query, _WATCH_S + _ANSWER_S) as response:
            async for line in response.content:
                yield json.loads(line)

    @asynccontextmanager
    async def _get(
        self, session: aiohttp.ClientSession, query: Mapping[str, str], silence_s: float
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=_ANSWER_S, sock_read=silence_s)
        headers = self._server.read_headers()
        async with session.get(self._url, params={**self._query, **query}, headers=headers, timeout=timeout) as response:
            if response.status != 200:
                raise DiscoveryFailed(f"the API server answers {response.status}")
            yield response

    def _merge(self, slices: Mapping[str, Any]) -> Addresses:
        return keep_one_family(address for item in slices.values() for address in read_slice(item, self._port))


def read_slice(item: Mapping[str, Any], port: str) -> Addresses:
    """The ready addresses of an EndpointSlice. Raises KeyError or TypeError when it is none."""
    ports = [it["port"] for it in item.get("ports") or () if port in (it.get("name"), str(it["port"]))]
    ready = [it for it in item.get("endpoints") or () if (it.get("conditions") or {}).get("ready") is not False]
    return frozenset(join_address(host, number) for number in ports for it in ready for host in it["addresses"])


def _apply(event: Mapping[str, Any], slices: dict[str, Any]) -> str:
    """Takes an event's change. Returns the version up to which the slices are known now."""
    kind, item = event["type"], event["object"]
    if kind == "ERROR":
        raise DiscoveryFailed(f"the watch ended with {item.get('code')}")
    if kind == "DELETED":
        slices.pop(item["metadata"]["name"], None)
    elif kind in ("ADDED", "MODIFIED"):
        slices[item["metadata"]["name"]] = item
    version: str = item["metadata"]["resourceVersion"]
    return version
