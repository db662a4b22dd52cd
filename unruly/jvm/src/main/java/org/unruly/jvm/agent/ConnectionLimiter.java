package org.unruly.jvm.agent;

import io.netty.channel.Channel;
import java.util.LinkedHashSet;
import java.util.Set;
import org.unruly.jvm.agent.Server.Limits;

/**
 * Limits the connections of a server. Identified clients may stay; others have a few seconds.
 *
 * <p>A connection is unidentified until it has sent a valid request of this run. Both the unidentified connections (the
 * limiter closes the oldest first) and all connections have a limit. All event loops call it, a few times per
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

  /** Admits a connection. Returns false if the limit is reached. */
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

  /** Marks a connection as identified: it sent a valid request. */
  synchronized void identify(Channel connection) {
    unidentified.remove(connection);
  }

  /** Releases an admitted connection that has closed. */
  synchronized void leave(Channel connection) {
    connections--;
    refused += unidentified.remove(connection) ? 1 : 0;
  }

  /** Counts a datagram that was not a request of this run. */
  synchronized void refuse() {
    refused++;
  }

  /** Returns the number of refused connections and datagrams. */
  synchronized long refused() {
    return refused;
  }
}
