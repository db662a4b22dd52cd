package org.unruly.systems;

import java.util.List;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.atomic.AtomicReference;
import org.unruly.apps.Spans;

/**
 * The replicas of a middle tier, as one client program knows them.
 *
 * <p>Each member has a connection to each replica, which is kept open: a fail-over needs no lookup of
 * a name and no new connection. A connection that broke is opened again by a thread of its own, as
 * soon as the replica is back.
 */
final class Replicas {
  private static final long AGAIN_MS = 50;

  private final List<EchoSystem.Client> clients;
  private final long timeoutNs;
  private final Spans spans;
  private final BlockingQueue<Link> broken = new LinkedBlockingQueue<>();

  /**
   * Wraps the clients of all replicas.
   *
   * @param timeoutNs timeout of a call, with all its attempts, ns
   * @param spans where the spans of calls go
   */
  Replicas(List<EchoSystem.Client> clients, long timeoutNs, Spans spans) {
    this.clients = List.copyOf(clients);
    this.timeoutNs = timeoutNs;
    this.spans = spans;
    Thread thread = new Thread(this::repair, "replicas");
    thread.setDaemon(true);
    thread.start();
  }

  /** Returns the calls of a new member: to all replicas at once, or to one after the other. */
  ReplicaCalls calls(boolean isActive) throws Exception {
    List<Link> links = clients.stream().map(Link::new).toList();
    Exception failure = null;
    int opened = 0;
    for (Link link : links) {
      try {
        link.open();
        opened++;
      } catch (Exception thrown) {
        failure = thrown;
        repair(link);
      }
    }
    if (opened == 0) {
      links.forEach(Link::close);
      throw failure;
    }
    return isActive
        ? new ActiveCalls(this, links, timeoutNs, spans)
        : new PassiveCalls(this, links, timeoutNs, spans);
  }

  /** Has the connection of a link opened again. */
  void repair(Link link) {
    broken.add(link);
  }

  private void repair() {
    try {
      while (true) {
        Link link = broken.take();
        try {
          if (!link.isClosed()) {
            link.open();
          }
        } catch (Exception thrown) {
          broken.add(link);
          Thread.sleep(AGAIN_MS);
        }
      }
    } catch (InterruptedException thrown) {
      Thread.currentThread().interrupt();
    }
  }

  /** The connection of a member to a replica, where it is open. */
  static final class Link {
    private final EchoSystem.Client client;
    private final AtomicReference<Connection> open = new AtomicReference<>();
    private volatile boolean closed;

    private Link(EchoSystem.Client client) {
      this.client = client;
    }

    boolean isClosed() {
      return closed;
    }

    /** Opens it, unless it is open. A server that runs answers even a request that is none. */
    void open() throws Exception {
      if (open.get() != null) {
        return;
      }
      Connection connection = client.connect();
      try {
        connection.call(new byte[0]);
      } catch (Exception thrown) {
        connection.close();
        throw thrown;
      }
      if (!open.compareAndSet(null, connection)) {
        connection.close();
      } else if (closed) {
        drop();
      }
    }

    /** Returns the open connection, or null. */
    Connection connection() {
      return open.get();
    }

    /** Closes the connection after a failure. */
    void drop() {
      Connection connection = open.getAndSet(null);
      if (connection != null) {
        connection.close();
      }
    }

    /** Closes the link for good. */
    void close() {
      closed = true;
      drop();
    }
  }
}
