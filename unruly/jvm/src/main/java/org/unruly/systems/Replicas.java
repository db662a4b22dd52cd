package org.unruly.systems;

import java.util.List;
import org.unruly.apps.Spans;

/**
 * The replicas of a middle tier, as one client program knows them.
 *
 * <p>A fail-over needs no lookup of a name and no new connection: see {@link Replica}.
 */
final class Replicas {
  private final List<Replica> all;
  private final long timeoutNs;
  private final Spans spans;

  /** The replica that new members call first: the one that answered last after a fail-over. */
  private volatile int first;

  /**
   * Wraps the clients of all replicas.
   *
   * @param timeoutNs timeout of a call, with all its attempts, ns
   * @param spans where the spans of calls go
   */
  Replicas(List<EchoSystem.Client> clients, long timeoutNs, Spans spans) {
    this.all = clients.stream().map(Replica::new).toList();
    this.timeoutNs = timeoutNs;
    this.spans = spans;
  }

  long timeoutNs() {
    return timeoutNs;
  }

  Spans spans() {
    return spans;
  }

  int first() {
    return first;
  }

  void prefer(int place) {
    first = place;
  }

  /**
   * Returns the calls of a new member: to all replicas at once, or to one after the other. One of
   * its links is open; the others follow.
   */
  ReplicaCalls calls(boolean isActive) throws Exception {
    List<Replica.Link> links = all.stream().map(Replica::link).toList();
    Exception failure = null;
    boolean isOpen = false;
    for (int turn = 0; turn < links.size(); turn++) {
      Replica.Link link = links.get((first + turn) % links.size());
      if (isOpen) {
        link.breakOff();
        continue;
      }
      try {
        link.open();
        isOpen = true;
      } catch (Exception thrown) {
        failure = thrown;
        link.breakOff();
      }
    }
    if (!isOpen) {
      links.forEach(Replica.Link::close);
      throw failure;
    }
    return isActive ? new ActiveCalls(this, links) : new PassiveCalls(this, links);
  }
}
