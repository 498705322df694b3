"""A policy of one's own: every ten seconds, a broker that is busier than another by a tenth sends it some clients.

trimtab lab compare padres-local --policies none,padres --policy examples/own_policy.py:Even
"""

from trimtab.language import Filter
from trimtab.policies.api import Announce, Heard, Listen, MoveClient, Tell, Woken

LOADS = Filter.parse("[class,eq,'EVEN'],[broker,isPresent,''],[load,isPresent,0]")


class Even:
    name = "even"
    observes = False  # it need not see every publication

    def __init__(self, rng, every_s=10.0):  # [policy.Even] in a file, or --set policy.Even.every_s=5, says otherwise
        self.rng, self.every_s, self.loads, self.next_s = rng, every_s, {}, None

    def start(self, host, now_s):
        self.host, self.next_s = host, now_s + self.every_s
        return [Announce(LOADS), Listen("loads", LOADS)]

    def handle(self, event, now_s):
        if isinstance(event, Heard):
            self.loads[event.values["broker"]] = event.values["load"]
        if not isinstance(event, Woken):
            return []
        self.next_s = now_s + self.every_s
        if len(self.host.neighbours()) != 1:
            return []  # subscribers are served by brokers at the edge
        load = self.host.load(now_s)
        ours = max(load.input_utilization_ratio, load.output_utilization_ratio)
        told = [Tell({"class": "EVEN", "broker": self.host.name, "load": ours})]
        idlest = min(self.loads, key=self.loads.get, default=self.host.name)
        if idlest == self.host.name or ours - self.loads[idlest] < 0.1:
            return told
        clients = self.host.clients()
        chosen = self.rng.sample(clients, max(1, len(clients) // 20)) if clients else []
        return told + [MoveClient(client, idlest, f"{self.host.name}/{now_s:.0f}") for client in chosen]

    def matched(self, publication, values, hops, now_s):
        return []

    def wake_at_s(self):
        return self.next_s
