"""Who is next: the Virtual Token Counter of Sheng et al., "Fairness in Serving Large Language Models" (OSDI'24, arXiv 2401.00588).

Theory of operation. Every tenant has a counter of the service it got, in tokens: a prompt token that the worker has not cached costs
`prompt`, an output token `output`, both divided by the tenant's weight. Of those that wait, the tenant with the smallest counter goes next.
A tenant that comes back after a pause is lifted to the smallest counter of those that wait (to the counter of the last that left, when none
waits): idling earns no credit.

As in the paper's variant with predicted lengths, the whole expected output is charged at dispatch. Tokens beyond it are charged as they
come, and what was not produced is taken back at the end, so that a counter never lags behind the work that is already under way.

Bound. Let V be a tenant's service so far, L the longest prompt, M the most that the turns that run at once sum up to, each with the larger
of its expected and its actual output. Take two tenants f and g that both wait, and the last dispatch of f. There c_f <= c_g, so V_f - V_g
is at most the output still expected of g's running turns. After it f gains one prompt and what its running turns produce, and g only
gains. With equal weights

    |V_f - V_g| <= U,  U = prompt * L + output * M,  so that over any interval in which both wait  |W_f - W_g| <= 2 U.

The paper proves 2 * max(prompt * L, output * M) without prediction, and that no work-conserving scheduler of this kind does better than
half of it. With weights the same holds for W / weight, with U for the smallest weight.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

_SWEEP_FROM = 1024
"""Accounts that are kept without looking whether they still mean anything."""


@dataclass(frozen=True, slots=True)
class Prices:
    """What a token costs; the paper's own values."""

    prompt: float = 1.0
    output: float = 2.0

    def of(self, new_tokens: int, output_tokens: float) -> float:
        """The cost of a turn."""
        return self.prompt * new_tokens + self.output * output_tokens


class Account:
    """One tenant: the service it got, and its turns that wait and run."""

    __slots__ = ("counter", "running", "tenant", "waiting", "weight")

    def __init__(self, tenant: str) -> None:
        self.tenant = tenant
        self.weight = 1.0
        self.counter = 0.0
        self.waiting = 0
        self.running = 0


class Bill:
    """What one dispatched turn is charged, from its dispatch to its end."""

    __slots__ = ("_account", "_cost", "_expected", "_new_tokens", "_prices", "_produced")

    def __init__(self, account: Account, prices: Prices, new_tokens: int, output_tokens: float) -> None:
        self._account = account
        self._prices = prices
        self._new_tokens = new_tokens
        self._expected = output_tokens
        self._produced = 0
        self._cost = 0.0
        self._charge()

    def add_output(self, tokens: int) -> None:
        """The worker produced this many more tokens."""
        self._produced += tokens
        if self._produced > self._expected:
            self._expected = self._produced
            self._charge()

    def set_prompt(self, new_tokens: int) -> None:
        """The worker had to read this many prompt tokens; the others were in its cache."""
        self._new_tokens = new_tokens
        self._charge()

    def settle(self) -> None:
        """The turn has ended: it is charged what it used."""
        self._expected = self._produced
        self._charge()

    def cancel(self) -> None:
        """The turn never reached a worker."""
        self._new_tokens = 0
        self.settle()

    def _charge(self) -> None:
        cost = self._prices.of(self._new_tokens, self._expected) / self._account.weight
        self._account.counter += cost - self._cost
        self._cost = cost


class Counters:
    """The counters of all tenants. A tenant waits from its first `join` until each of its turns was dispatched or has left."""

    def __init__(self, prices: Prices) -> None:
        self._prices = prices
        self._accounts: dict[str, Account] = {}
        self._waiting: dict[Account, None] = {}
        self._last_left: Account | None = None
        self._sweep_at = _SWEEP_FROM

    @property
    def waiting(self) -> Collection[Account]:
        """Tenants with turns that wait; of equal counters the first goes first."""
        return self._waiting.keys()

    @property
    def accounts(self) -> Collection[Account]:
        """All tenants that are known."""
        return self._accounts.values()

    def waiting_of(self, tenant: str) -> int:
        """Turns of the tenant that wait."""
        account = self._accounts.get(tenant)
        return account.waiting if account else 0

    def find(self, tenant: str) -> Account | None:
        """The tenant's account, if it is known."""
        return self._accounts.get(tenant)

    def level_of(self, account: Account | None) -> float:
        """The counter with which a tenant that does not wait would begin to."""
        return max(account.counter if account else 0.0, self._floor())

    def join(self, tenant: str, weight: float) -> Account:
        """A turn of the tenant begins to wait."""
        account = self._accounts.get(tenant) or self._open(tenant)
        if not account.waiting:
            account.weight = weight
            account.counter = self.level_of(account)
            self._waiting[account] = None
        account.waiting += 1
        return account

    def leave(self, account: Account) -> None:
        """A turn of the tenant no longer waits."""
        account.waiting -= 1
        if not account.waiting:
            del self._waiting[account]
            self._last_left = account

    def dispatch(self, account: Account, new_tokens: int, output_tokens: float) -> Bill:
        """A turn of the tenant goes to a worker, with this many uncached prompt tokens and this output expected."""
        self.leave(account)
        account.running += 1
        return Bill(account, self._prices, new_tokens, output_tokens)

    def end(self, account: Account) -> None:
        """A dispatched turn of the tenant no longer runs."""
        account.running -= 1

    def next(self) -> Account:
        """The tenant that goes next. Somebody must wait."""
        return min(self._waiting, key=_counter_of)

    def _floor(self) -> float:
        """Where a tenant that begins to wait starts at the least."""
        if self._waiting:
            return min(map(_counter_of, self._waiting))
        return self._last_left.counter if self._last_left else 0.0

    def _open(self, tenant: str) -> Account:
        if len(self._accounts) >= self._sweep_at:
            self._sweep()
        account = self._accounts[tenant] = Account(tenant)
        return account

    def _sweep(self) -> None:
        """Forgets idle tenants that would be lifted anyway if they came back."""
        floor = self._floor()
        self._accounts = {a.tenant: a for a in self._accounts.values() if a.waiting or a.running or a.counter > floor}
        self._sweep_at = max(_SWEEP_FROM, 2 * len(self._accounts))


def _counter_of(account: Account) -> float:
    return account.counter
