"""What goes wrong in a storm, and when: all of it follows from a seed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

SERVERS = ("server-1", "server-2", "server-3")
OWNERS = ("owner-1", "owner-2", "owner-3")
CONTROLLER = "controller"
PARTS = {"server": SERVERS, "controller": (CONTROLLER,), "owner": OWNERS}

ADDRESSES = {CONTROLLER: "127.0.0.2"} | {
    name: f"127.0.0.{number}" for number, name in enumerate(SERVERS, 11)
}

# Owners listen where the kernel likes; their sockets are known by the group that they run as.
GROUPS = {name: number for number, name in enumerate(OWNERS, 20_001)}

SHORT_S, MIDDLE_S, LONG_S = (0.01, 0.1), (0.1, 1.0), (1.0, 5.0)


@dataclass(frozen=True)
class Card:
    """A fault that a mix contains: its time and its part are dealt."""

    kind: str
    role: str = ""
    lasts_s: tuple[float, float] = MIDDLE_S
    percent: int = 0


@dataclass(frozen=True)
class Fault:
    """Something that goes wrong, from when to when."""

    kind: str
    parts: tuple[str, ...]
    at_s: float
    until_s: float
    percent: int = 0

    @property
    def name(self) -> str:
        """The name of the fault in the report of a run: `kill server`, `loss 5 %`."""
        if self.kind == "loss":
            return f"loss {self.percent} %"
        roles = {name: role for role, names in PARTS.items() for name in names}
        return " ".join([self.kind, *sorted({roles[part] for part in self.parts})])


KILLS = (
    *[Card("kill", "server", (0.0, 1.5))] * 4,
    *[Card("kill", "controller", (0.0, 1.5))] * 2,
    *[Card("kill", "owner", (0.0, 0.5))] * 4,
)
PAUSES = (
    *[Card("stop", role, lasts) for role in PARTS for lasts in (SHORT_S, MIDDLE_S, LONG_S)],
    *[Card("usurp", "owner", lasts) for lasts in (MIDDLE_S, LONG_S)],
    Card("stop", "server", LONG_S),
)
LOSSES = tuple(Card("loss", "", LONG_S, percent) for percent in (1, 5, 20))
PARTITIONS = (
    *[Card(kind, role, MIDDLE_S) for kind in ("cut", "mute") for role in ("server", "owner")],
    *[Card("isolate", role, LONG_S) for role in PARTS],
)
MIXES: dict[str, tuple[Card, ...]] = {
    "kills": KILLS,
    "pauses": PAUSES,
    "network": LOSSES + PARTITIONS + LOSSES,
    "everything": (
        *[Card("kill", role, (0.0, 1.5)) for role in ("server", "server", "controller")],
        *[Card("kill", "owner", (0.0, 0.5))] * 4,
        *[Card("stop", role, LONG_S) for role in ("server", "server", "controller", "owner")],
        *[Card("stop", role, SHORT_S) for role in PARTS],
        Card("usurp", "owner", LONG_S),
        *LOSSES,
        Card("cut", "server", LONG_S),
        *[Card(kind, "owner", LONG_S) for kind in ("cut", "mute", "mute")],
        *[Card("isolate", role) for role in PARTS],
    ),
}


def deal(mix: str, seed: int, seconds: float) -> list[Fault]:
    """Every card of a mix once, in a random order, spread over the time.

    A part is hit by one thing at a time; different parts may well be hit together.
    """
    if mix == "wipe":
        return wipe(seconds)
    dice = np.random.default_rng(seed)
    cards = [MIXES[mix][index] for index in dice.permutation(len(MIXES[mix]))]
    apart_s = seconds / (len(cards) + 1)
    busy: dict[str, float] = {}
    faults = []
    for number, card in enumerate(cards):
        at_s = apart_s * (number + dice.uniform(0.5, 1.0))
        names = PARTS.get(card.role, ("network",))
        # The one that is free soonest, so that a card is never left out.
        order = [names[index] for index in dice.permutation(len(names))]
        part = min(order, key=lambda name: max(at_s, busy.get(name, 0.0)))
        at_s = max(at_s, busy.get(part, 0.0))
        low_s, high_s = card.lasts_s
        lasts_s = np.exp(dice.uniform(np.log(max(low_s, 0.01)), np.log(high_s)))
        until_s = min(at_s + float(lasts_s), seconds)
        parts: tuple[str, ...] = () if part == "network" else (part,)
        if card.kind in {"cut", "mute"}:
            others = [*SERVERS, CONTROLLER] if card.role == "owner" else SERVERS
            parts += (str(dice.choice([name for name in others if name != part])),)
        faults.append(Fault(card.kind, parts, at_s, until_s, card.percent))
        busy[part] = until_s
    return [fault for fault in faults if fault.at_s < seconds]


def wipe(seconds: float) -> list[Fault]:
    """All servers die at once, and all owners but one, so that no written value is left.

    The remaining owner must be notified that data is lost, the next ones that the tail may be.
    """
    middle_s = seconds / 2
    return [Fault("kill", (part,), middle_s, middle_s + 0.5) for part in (*SERVERS, *OWNERS[1:])]


def table() -> str:
    """The rules of a network in which nothing goes wrong yet."""
    marks = "\n".join(f"    meta skgid {group} ct mark set {group}" for group in GROUPS.values())
    return f"""
table inet weather {{
  counter lost {{ }}
  counter cut {{ }}
  chain leaving {{
    type filter hook output priority mangle;
{marks}
  }}
  chain arriving {{
    type filter hook input priority filter;
  }}
}}
"""


def rules(active: Iterable[Fault]) -> str:
    """The change to a network in which these faults are."""
    lines = ["flush chain inet weather arriving"]
    for fault in active:
        matches = []
        if fault.kind == "isolate":
            (part,) = fault.parts
            matches = [towards(part), away_from(part)]
        elif fault.kind in {"cut", "mute"}:
            one, other = fault.parts
            matches = [f"{away_from(one)} {towards(other)}"]
            if fault.kind == "cut":
                matches.append(f"{away_from(other)} {towards(one)}")
        elif fault.kind == "loss":
            lines.append(
                "add rule inet weather arriving "
                f'numgen random mod 100 < {fault.percent} counter name "lost" drop'
            )
        lines += [
            f'add rule inet weather arriving {match} counter name "cut" drop' for match in matches
        ]
    return "\n".join(lines) + "\n"


def towards(part: str) -> str:
    if part in GROUPS:
        return f"ct mark {GROUPS[part]} ct direction reply"
    return f"ip daddr {ADDRESSES[part]}"


def away_from(part: str) -> str:
    if part in GROUPS:
        return f"ct mark {GROUPS[part]} ct direction original"
    return f"ip saddr {ADDRESSES[part]}"
