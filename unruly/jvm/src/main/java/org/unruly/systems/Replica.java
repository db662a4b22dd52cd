package org.unruly.systems;

import java.util.Set;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReference;

/**
 * A replica of the middle tier, as one client program knows it.
 *
 * <p>Each member has a link to it, whose connection is kept open. A thread of the replica opens
 * broken connections again, so a replica that hangs keeps no other one waiting. The thread also calls the
 * replica by a connection of its own, several times a second: when that fails, the connections of
 * all links are opened anew, since those that were idle would fail only when they are needed.
 */
final class Replica {
  private static final long LOOK_MS = 200;
  private static final long AGAIN_MS = 50;
  private static final byte[] EMPTY = {};

  private final EchoSystem.Client client;
  private final Set<Link> links = ConcurrentHashMap.newKeySet();
  private final BlockingQueue<Link> broken = new LinkedBlockingQueue<>();
  private Connection own;

  Replica(EchoSystem.Client client) {
    this.client = client;
    Thread thread = new Thread(this::watch, "replica");
    thread.setDaemon(true);
    thread.start();
  }

  /** Returns a new link without a connection. */
  Link link() {
    Link link = new Link();
    links.add(link);
    return link;
  }

  private void watch() {
    try {
      while (true) {
        Link link = broken.poll(LOOK_MS, TimeUnit.MILLISECONDS);
        if (link == null) {
          look();
        } else if (!link.closed && !opened(link)) {
          broken.add(link);
          // one that cannot be opened now is like the others of this replica
          Thread.sleep(AGAIN_MS);
        }
      }
    } catch (InterruptedException thrown) {
      Thread.currentThread().interrupt();
    }
  }

  private static boolean opened(Link link) {
    try {
      link.open();
      return true;
    } catch (Exception | OutOfMemoryError | LinkageError thrown) {
      return false;
    }
  }

  private void look() {
    try {
      if (own == null) {
        own = client.connect();
      }
      own.call(EMPTY);
    } catch (Exception | OutOfMemoryError | LinkageError thrown) {
      if (own == null) {
        return;
      }
      own.close();
      own = null;
      links.forEach(Link::breakOff);
    }
  }

  /** The connection of a member to this replica, where it is open. */
  final class Link {
    private final AtomicReference<Connection> open = new AtomicReference<>();
    private volatile boolean closed;

    private Link() {}

    /** Opens it, unless it is open. A server that runs answers even a request that is none. */
    void open() throws Exception {
      if (open.get() != null) {
        return;
      }
      Connection connection = client.connect();
      try {
        connection.call(EMPTY);
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

    /** Closes the connection, and has it opened again. */
    void breakOff() {
      drop();
      broken.add(this);
    }

    private void drop() {
      Connection connection = open.getAndSet(null);
      if (connection != null) {
        connection.close();
      }
    }

    /** Closes the link for good. */
    void close() {
      closed = true;
      links.remove(this);
      drop();
    }
  }
}
