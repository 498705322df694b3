"""What `trimtab sim run` tells of latency requirements and of attacks."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trimtab.simulation.faults.attacks import AttackSummary
    from trimtab.simulation.scenarios.crisis_watch import CrisisSummary


def crisis_lines(crisis: CrisisSummary) -> list[str]:
    """Late deliveries and latencies by topic, moves with their reasons, and when all was well again."""
    lines = [f"{'topic':<6} {'within':>7} {'deliveries':>11} {'late':>8} {'p50':>9} {'p99':>9}"]
    for name, topic in crisis.topics.items():
        within = "" if topic.within_s is None else f"{topic.within_s:g} s"
        lines.append(
            f"{name:<6} {within:>7} {topic.deliveries:>11,} {topic.late:>8,} "
            f"{topic.latency_p50_s:>7.2f} s {topic.latency_p99_s:>7.2f} s"
        )
    lines.append(f"late {crisis.late_total:,}, of these {crisis.late_outside_window:,} outside the balancing window")
    for broker, topics in crisis.placement.items():
        if topics:
            lines.append(f"before the burst {broker} serves topics {', '.join(map(str, topics))}")
    for move in crisis.moves:
        moved = ", ".join(map(str, move.topics))
        what = f"{move.clients} clients of {moved} from {move.from_broker} to {move.to_broker}"
        lines.append(f"at {move.at_s:.1f} s {what}, done at {move.done_s:.1f} s: {move.reason}")
    if crisis.unnecessary_moves is not None:
        lines.append(f"unnecessary moves: {', '.join(crisis.unnecessary_moves) or 'none'}")
    if crisis.worst_topic is not None:
        empty = crisis.worst_topic_queue_empty_at_s
        when = "not empty at the end" if empty is None else f"empty from {empty:g} s on"
        lines.append(f"worst queue: topic {crisis.worst_topic}, {when}")
    balanced = crisis.balanced_at_s
    lines.append("not balanced at the end" if balanced is None else f"balanced from {balanced:g} s on")
    return lines


def attack_lines(attack: AttackSummary) -> list[str]:
    """What an attack did to others, and what the attacker was told."""
    lines = [f"others during the attack: {attack.deliveries:,} deliveries, p99 {attack.p99_s:.3f} s"]
    if attack.p99_without_s is not None and attack.p99_ratio is not None:
        verdict = "contained" if attack.contained else "NOT CONTAINED"
        lines.append(f"without it p99 {attack.p99_without_s:.3f} s: {attack.p99_ratio:.2f} times, {verdict}")
    if attack.worst_topic is not None and attack.worst_topic_ratio is not None:
        lines.append(f"worst topic: {attack.worst_topic}, {attack.worst_topic_ratio:.2f} times")
    if attack.sent:
        lines.append(f"the attacker sent {attack.sent:,}, of which {attack.taken:,} were taken")
    lines += [f"it was told {count:,} times: {reason}" for reason, count in attack.told.items()]
    return lines
