"""What the three offload algorithms share: candidates, report cards, bounds, and the estimate of both brokers.

Source: A. Cheung, dynamic load balancing in distributed content-based publish/subscribe (thesis, 2006), section 4.2,
Figures 4.1 to 4.3, 4.5, 4.6 and 4.8.

An algorithm chooses one candidate after another. Each choice changes what both brokers are estimated to carry, which
publications the accepting broker receives anyway, and which filters stand at the top of our own; the next choice is
made on that. For each candidate the largest number of clients is found that the accepting broker can bear, and of
those the smallest that balances the two.

Deviations:
- Candidates are groups of clients with the same filters ("interests"), since clients move as a whole. In the thesis
  every subscriber has one subscription, and a group is what it calls a unique subscription.
- The bound on clients per candidate is that the accepting broker stays below the lower overload threshold in all four
  utilisations; the printed text names the offloading broker.
- The bound keeps a margin (`acceptor_margin_ratio`) from the threshold: indices fluctuate, and a broker that is planned
  to end just below it would as often end above it.
- In that bound, clients that received nothing during the sample count as if they had received a little
  (`UNSEEN_PUBLICATIONS`). Close to the bound only such clients seem bearable, and hundreds of them are not.
- The smallest number that balances is found by bisection instead of counting down: all estimates are monotonous in
  the number of clients, so that the result is the same.
- What a candidate spares us is what no other candidate wants, computed over all of them. The thesis looks at children
  and siblings in its order of filters, which together want the same.
- A candidate is chosen only if it brings the two brokers closer together. The printed code also takes one that
  changes nothing.
- A candidate of which only some clients move leaves our order of filters as any other does, and what it covered becomes
  eligible; but what those that stay want still comes to us, so that it is not counted as spared.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Final, TypeAlias

import msgspec

from trimtab.language import Filter
from trimtab.load.estimation import BrokerResources, LoadChange, after_change, with_matching_delay_like
from trimtab.load.profiles import Interest, Sample, only_once, publication_rate_per_s
from trimtab.matching.covering import CoveringSet
from trimtab.policies.padres.config import PadresConfig
from trimtab.policies.padres.decisions import LoadIndex, NoAction, Reason
from trimtab.policies.padres.snapshot import delay_difference

UNSEEN_PUBLICATIONS: Final = 1 / 3
"""What a client that received none of the sampled publications is taken to receive of as many others, in the bound on
what the accepting broker bears. Most such clients want something that is seldom published. Chosen after one session
of the experiment in section 5.2.2, where they received 0.3 of a publication while 50 were sampled."""


class ClientMove(msgspec.Struct, frozen=True):
    """A client to move, and the step of the algorithm that chose it."""

    client: str
    step: str


class ReportCard(msgspec.Struct, frozen=True, kw_only=True):
    """A candidate as the algorithm saw it last: what moving it would do, and why it was taken or left."""

    interest: Interest
    clients: tuple[str, ...]
    """The clients that would move; none if the accepting broker cannot bear a single one."""

    difference: float
    """By how much we would still exceed the accepting broker in the index at hand; negative if it would exceed us."""

    covered: bool
    """Whether the accepting broker's filters cover it, so that it brings no new input there."""

    reduced_rate_per_s: float
    """By how much our input would fall."""

    reducible_rate_per_s: float
    """By how much it would fall if all clients of the candidate moved."""

    output_rate_bytes_per_s: float
    """What each of the clients is sent."""

    extra_input_rate_per_s: float
    """What would come to the accepting broker in addition."""

    extra_traffic_per_s: float
    """Publications to each client, and in addition to the accepting broker."""

    taken: bool = False
    why: str = ""


class OffloadPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The clients to move, in order, and what both brokers are estimated to carry before and after."""

    action: LoadIndex
    moves: tuple[ClientMove, ...]
    ours_before: BrokerResources
    theirs_before: BrokerResources
    ours_after: BrokerResources
    theirs_after: BrokerResources
    difference_before: float
    difference_after: float
    stopped: str
    """Why no more was chosen."""

    cards: tuple[ReportCard, ...]
    """Every candidate that was considered, those taken first, in order."""


Holds: TypeAlias = Callable[[BrokerResources, BrokerResources], bool]
"""Something that is true of our and their estimated load from some number of clients on."""


def index_difference(action: LoadIndex, ours: BrokerResources, theirs: BrokerResources, config: PadresConfig) -> float:
    """By how much we exceed them in the index at hand: a difference of ratios, or of delays by equation 3.5."""
    match action:
        case LoadIndex.INPUT:
            return ours.input_utilization_ratio - theirs.input_utilization_ratio
        case LoadIndex.MATCH:
            return delay_difference(ours.matching_delay_s, theirs.matching_delay_s, config.delay_normalization_s)
        case LoadIndex.OUTPUT:
            return ours.output_utilization_ratio - theirs.output_utilization_ratio


def overload_measure(action: LoadIndex, broker: BrokerResources) -> float:
    """The utilisation that an overloaded broker must bring down with this action."""
    if action == LoadIndex.OUTPUT:
        return broker.output_utilization_ratio
    return max(broker.input_utilization_ratio, broker.cpu_utilization_ratio, broker.memory_utilization_ratio)


class Aim:
    """What levelling a ratio aims at: the two brokers meet, and one that was overloaded is so no more."""

    def __init__(self, action: LoadIndex, ours: BrokerResources, config: PadresConfig) -> None:
        self._action = action
        self._config = config
        self._overloaded = overload_measure(action, ours) > config.higher_overload_ratio

    def still_overloaded(self, ours: BrokerResources) -> bool:
        """Whether we were overloaded and would not be relieved yet."""
        return self._overloaded and overload_measure(self._action, ours) >= self._config.lower_overload_ratio

    def reached(self, ours: BrokerResources, theirs: BrokerResources) -> bool:
        """Whether nothing more needs to move."""
        difference = index_difference(self._action, ours, theirs, self._config)
        return difference < self._config.balance_difference and not self.still_overloaded(ours)


class Workspace:
    """The state of one planning: what is still here, what is chosen, and both brokers as they would be."""

    def __init__(
        self,
        ours: BrokerResources,
        theirs: BrokerResources,
        sample: Sample,
        their_filters: Sequence[Filter],
        config: PadresConfig,
    ) -> None:
        self.config = config
        self.sample = sample
        self.ours_before = self.ours = ours
        self.theirs_before = self.theirs = with_matching_delay_like(theirs, ours)
        self.interests = sample.interests()
        self.moves: list[ClientMove] = []
        self.open: dict[int, None] = dict.fromkeys(range(len(self.interests)))
        self._staying: dict[int, int] = {number: each.bits for number, each in enumerate(self.interests)}
        self._output_bytes_per_s = [sample.bandwidth_bytes_per_s(each.bits) for each in self.interests]
        self._accepted_bits = sample.accepted_bits
        self._unseen_count = 0
        rate_per_s = publication_rate_per_s(1, sample.sample_count, sample.input_rate_per_s)
        self._unseen_bytes_per_s = UNSEEN_PUBLICATIONS * rate_per_s * sample.mean_size_bytes
        self._spared_bits = self._find_spared_bits()
        self._own = CoveringSet()
        self._theirs = CoveringSet()
        for number, filter in enumerate(their_filters):
            self._theirs.add(number, filter)
        self._covered: set[tuple[int, int]] = set()
        for number, interest in enumerate(self.interests):
            for place, filter in enumerate(interest.filters):
                self._own.add((number, place), filter)
                if self._theirs.find_covering(filter) is not None:
                    self._covered.add((number, place))
        self._top: set[int] = set()
        self._note_top(self._own.covering())
        self._cards: dict[int, ReportCard] = {}
        self._taken: list[ReportCard] = []

    # What is true of a candidate

    def is_top(self, number: int) -> bool:
        """Whether one of its filters is covered by no other filter here: our covering set would shrink without it."""
        return number in self._top

    def _note_top(self, keys: Iterable[Hashable]) -> None:
        for key in keys:
            self._top.update(twin[0] for twin in (key, *self._own.twins(key)) if isinstance(twin, tuple))

    def is_covered(self, number: int) -> bool:
        """Whether the accepting broker's filters, with those already chosen, cover all of its filters."""
        return all((number, place) in self._covered for place in range(len(self.interests[number].filters)))

    def reducible_rate_per_s(self, number: int) -> float:
        """What would no longer come to us if all of its clients moved."""
        return self.sample.rate_per_s(self.interests[number].bits & self._spared_bits)

    def extra_input_rate_per_s(self, number: int) -> float:
        """What would come to the accepting broker in addition."""
        return self.sample.rate_per_s(self.interests[number].bits & ~self._accepted_bits)

    def extra_traffic_per_s(self, number: int) -> float:
        """The disturbance that moving it means for input and output (section 4.2.2)."""
        return self.sample.rate_per_s(self.interests[number].bits) + self.extra_input_rate_per_s(number)

    def least_traffic(self) -> int | None:
        """The open candidate with the least extra traffic; None if there is none."""
        fresh_bits = ~self._accepted_bits
        interests = self.interests

        def traffic_count(number: int) -> tuple[int, int]:
            bits = interests[number].bits
            return bits.bit_count() + (bits & fresh_bits).bit_count(), number

        return min(self.open, key=traffic_count, default=None)

    def _find_spared_bits(self) -> int:
        return only_once(self._staying.values()) & ~self.sample.fixed_bits

    # What moving clients would do

    def changes(self, number: int, count: int) -> tuple[LoadChange, LoadChange]:
        """What moving so many clients of a candidate changes for us, and for them."""
        interest = self.interests[number]
        subscription_count = count * interest.subscriptions_per_client_count
        output_bytes_per_s = count * self._output_bytes_per_s[number]
        size_bytes = self.sample.mean_size_bytes
        reduced_per_s = self.reducible_rate_per_s(number) if count == len(interest.clients) else 0.0
        extra_per_s = self.extra_input_rate_per_s(number) if count else 0.0
        return (
            LoadChange(-subscription_count, -reduced_per_s, -reduced_per_s * size_bytes, -output_bytes_per_s),
            LoadChange(subscription_count, extra_per_s, extra_per_s * size_bytes, output_bytes_per_s),
        )

    def after(self, number: int, count: int) -> tuple[BrokerResources, BrokerResources]:
        """Both brokers after moving so many clients of a candidate."""
        ours, theirs = self.changes(number, count)
        return after_change(self.ours, ours), after_change(self.theirs, theirs)

    def bearable_count(self, number: int, forbidden: Holds | None = None) -> int:
        """The clients of a candidate that may move: the accepting broker stays well below the lower overload threshold,
        and what is forbidden does not come true."""

        def too_many(count: int) -> bool:
            ours, theirs = self.after(number, count)
            if self._with_unseen(theirs, number, count).highest_utilization_ratio >= self.config.bearable_ratio:
                return True
            return forbidden is not None and forbidden(ours, theirs)

        all_count = min(len(self.interests[number].clients), self.room_count)
        if not too_many(all_count):
            return all_count
        return bisect_left(range(1, all_count), True, key=too_many)

    def _with_unseen(self, theirs: BrokerResources, number: int, count: int) -> BrokerResources:
        """The accepting broker, with what clients that received nothing during the sample may well receive."""
        unseen_count = self._unseen_count + (0 if self.interests[number].bits else count)
        if not unseen_count:
            return theirs
        return after_change(theirs, LoadChange(output_rate_bytes_per_s=unseen_count * self._unseen_bytes_per_s))

    @property
    def room_count(self) -> int:
        """Clients that may still be chosen in this session."""
        return self.config.session_clients_max_count - len(self.moves)

    def needed_count(self, number: int, bearable_count: int, enough: Holds) -> int:
        """The smallest number of clients that is enough, or all that may move (Figures 4.1, 4.5, 4.6, 4.8)."""
        if bearable_count == 0:
            return 0
        return 1 + bisect_left(range(1, bearable_count), True, key=lambda count: enough(*self.after(number, count)))

    def difference(self, action: LoadIndex) -> float:
        """By how much we exceed them, with all that is chosen."""
        return index_difference(action, self.ours, self.theirs, self.config)

    def card(self, number: int, action: LoadIndex, enough: Holds, forbidden: Holds | None = None) -> ReportCard:
        """The report card of a candidate."""
        return self._card(number, *self._count_and_difference(number, action, enough, forbidden))

    def cards(
        self, numbers: Iterable[int], action: LoadIndex, enough: Holds, forbidden: Holds | None = None
    ) -> dict[int, ReportCard]:
        """The report cards of those candidates of which some client may move; the others are noted as left.

        Candidates that weigh the same fare the same; many do, since a sample is short, and are looked at once.
        """
        found: dict[int, ReportCard] = {}
        known: dict[tuple[float, ...], tuple[int, float]] = {}
        for number in numbers:
            weight = self._weight(number)
            if weight not in known:
                known[weight] = self._count_and_difference(number, action, enough, forbidden)
            card = self._card(number, *known[weight])
            if card.clients:
                found[number] = card
            else:
                self.leave(number, card, "even one client would be too much for the accepting broker")
        return found

    def _weight(self, number: int) -> tuple[float, ...]:
        interest = self.interests[number]
        return (
            len(interest.clients),
            interest.subscriptions_per_client_count,
            self._output_bytes_per_s[number],
            (interest.bits & self._spared_bits).bit_count(),
            (interest.bits & ~self._accepted_bits).bit_count(),
        )

    def _count_and_difference(
        self, number: int, action: LoadIndex, enough: Holds, forbidden: Holds | None
    ) -> tuple[int, float]:
        count = self.needed_count(number, self.bearable_count(number, forbidden), enough)
        return count, index_difference(action, *self.after(number, count), self.config)

    def _card(self, number: int, count: int, difference: float) -> ReportCard:
        interest = self.interests[number]
        reducible_per_s = self.reducible_rate_per_s(number)
        return ReportCard(
            interest=interest,
            clients=interest.clients[:count],
            difference=difference,
            covered=self.is_covered(number),
            reduced_rate_per_s=reducible_per_s if count == len(interest.clients) else 0.0,
            reducible_rate_per_s=reducible_per_s,
            output_rate_bytes_per_s=self._output_bytes_per_s[number],
            extra_input_rate_per_s=self.extra_input_rate_per_s(number),
            extra_traffic_per_s=self.extra_traffic_per_s(number),
        )

    # What was decided

    def take(self, number: int, card: ReportCard, step: str) -> None:
        """Choose a candidate: both brokers, the covering sets and what the other receives anyway change."""
        interest = self.interests[number]
        self.ours, self.theirs = self.after(number, len(card.clients))
        self._accepted_bits |= interest.bits
        self._unseen_count += 0 if interest.bits else len(card.clients)
        for place, filter in enumerate(interest.filters):
            if (number, place) not in self._covered:
                self._theirs.add((number, place), filter)
                self._covered.update(key for key in self._own.find_covered(filter) if isinstance(key, tuple))
        for place in range(len(interest.filters)):  # no longer considered, so what it covered may be (4.2.1)
            self._note_top(self._own.remove((number, place)).entered)
        if len(card.clients) == len(interest.clients):
            del self._staying[number]
        self._spared_bits = self._find_spared_bits()
        del self.open[number]
        self._cards.pop(number, None)
        self._taken.append(msgspec.structs.replace(card, taken=True, why=step))
        self.moves.extend(ClientMove(client, step) for client in card.clients)

    def leave(self, number: int, card: ReportCard, why: str) -> None:
        """Note why a candidate is not chosen, for now."""
        self._cards[number] = msgspec.structs.replace(card, why=why)

    def close(self, number: int) -> None:
        """Do not consider a candidate again."""
        del self.open[number]

    def plan(self, action: LoadIndex, stopped: str) -> OffloadPlan | NoAction:
        """The plan, or why there is none."""
        if not self.moves:
            return NoAction(Reason.NOTHING_HELPS if self.interests else Reason.NO_CLIENTS, stopped)
        return OffloadPlan(
            action=action,
            moves=tuple(self.moves),
            ours_before=self.ours_before,
            theirs_before=self.theirs_before,
            ours_after=self.ours,
            theirs_after=self.theirs,
            difference_before=index_difference(action, self.ours_before, self.theirs_before, self.config),
            difference_after=self.difference(action),
            stopped=stopped,
            cards=(*self._taken, *(card for _, card in sorted(self._cards.items()))),
        )


def choose(
    cards: dict[int, ReportCard], difference_before: float, *, overloaded: bool, prefer: Callable[[ReportCard], float]
) -> int | None:
    """The candidate that leaves the difference closest to zero (Figure 4.2); an overloaded broker takes the one that
    just makes it the less loaded of the two, if there is one (Figure 4.3). Ties go to the larger preference, then to
    more clients. None if no candidate brings the two closer together."""

    def closest(number: int) -> tuple[float, float, int, int]:
        card = cards[number]
        return abs(card.difference), -prefer(card), -len(card.clients), number

    if overloaded:
        helpful = [number for number, card in cards.items() if card.difference < difference_before]
        beyond = [number for number in helpful if cards[number].difference < 0]
        return min(beyond or helpful, key=closest, default=None)
    helpful = [number for number, card in cards.items() if abs(card.difference) < abs(difference_before)]
    return min(helpful, key=closest, default=None)
