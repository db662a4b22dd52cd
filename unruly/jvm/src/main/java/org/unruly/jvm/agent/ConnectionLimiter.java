package org.unruly.jvm.agent;

import io.netty.channel.Channel;
import java.util.LinkedHashSet;
import java.util.Set;
import org.unruly.jvm.agent.Server.Limits;

/**
 * Who may stay connected: peers of the run for as long as they like, strangers for some seconds.
 *
 * <p>A connection is a stranger until it has said a valid request of this run. There are never more than a bounded
 * number of strangers (the oldest goes first), nor of connections of all kinds. Asked by all event loops, a few times a
 * connection.
 */
final class ConnectionLimiter {
  private final Limits limits;
  private final Set<Channel> unidentified = new LinkedHashSet<>();
  private int connections;
  private long refused;

  ConnectionLimiter(Limits limits) {
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
      if (unidentified.size() >= limits.unidentified()) {
        oldest = unidentified.iterator().next();
        unidentified.remove(oldest);
        refused++;
      }
      connections++;
      unidentified.add(connection);
    }
    if (oldest != null) {
      oldest.close();
    }
    return true;
  }

  /** It has said a valid request. */
  synchronized void identify(Channel connection) {
    unidentified.remove(connection);
  }

  /** A connection that was let in has ended. */
  synchronized void leave(Channel connection) {
    connections--;
    refused += unidentified.remove(connection) ? 1 : 0;
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
