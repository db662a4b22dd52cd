package org.unruly.jvm.agent;

import io.netty.channel.Channel;
import java.util.LinkedHashSet;
import java.util.Set;

/**
 * Who may stay connected: peers of the run for as long as they like, strangers for some seconds.
 *
 * <p>A connection is a stranger until it has said a valid request of this run. There are never more than a bounded
 * number of strangers (the oldest goes first), nor of connections of all kinds. Asked by all event loops, a few times a
 * connection.
 */
final class Door {
  private final Limits limits;
  private final Set<Channel> strangers = new LinkedHashSet<>();
  private int connections;
  private long refused;

  Door(Limits limits) {
    this.limits = limits;
  }

  /** Lets a connection in; false when it is full. */
  boolean enter(Channel connection) {
    Channel oldest = null;
    synchronized (this) {
      if (connections >= limits.connections()) {
        refused++;
        return false;
      }
      if (strangers.size() >= limits.strangers()) {
        oldest = strangers.iterator().next();
        strangers.remove(oldest);
        refused++;
      }
      connections++;
      strangers.add(connection);
    }
    if (oldest != null) {
      oldest.close();
    }
    return true;
  }

  /** It has said a valid request. */
  synchronized void know(Channel connection) {
    strangers.remove(connection);
  }

  /** A connection that was let in has ended. */
  synchronized void leave(Channel connection) {
    connections--;
    refused += strangers.remove(connection) ? 1 : 0;
  }

  /** A datagram was no request of this run. */
  synchronized void refuse() {
    refused++;
  }

  /** Connections and datagrams that were turned away. */
  synchronized long refused() {
    return refused;
  }
}
