package org.unruly.systems;

import java.util.Set;
import org.unruly.jvm.Options;

/**
 * A middleware system that echoes bytes: its server, and how a client calls it.
 *
 * <p>All systems have this one form, so that a measurement of them differs in the middleware only.
 */
interface EchoSystem {
  /** The most bytes of a payload, where the system itself has no lower limit. */
  int MAX_BYTES = 64 << 20;

  /** Time for the first connection of a client, ns. */
  long START_NS = 5_000_000_000L;

  /** Returns the keys of its options, for the server and the client. */
  default Set<String> keys() {
    return Set.of("host", "port");
  }

  /** Returns the port of the server. */
  static int port(Options options) {
    return (int) options.number("port", 1, 65_535);
  }

  /** Returns a timeout in whole milliseconds, at least 1: to most libraries 0 means none. */
  static int millis(long timeoutNs) {
    return (int) Math.max(1, Math.min(Integer.MAX_VALUE, timeoutNs / 1_000_000));
  }

  /** Starts the server, which serves until the process ends; returns when it answers calls. */
  void serve(Options options) throws Exception;

  /**
   * Returns a client that has no connection yet.
   *
   * @param timeoutNs timeout of a call, ns
   */
  Client client(Options options, long timeoutNs) throws Exception;

  /** The part of a client that its connections share. */
  interface Client extends AutoCloseable {
    /** Makes one attempt to connect. */
    Connection connect() throws Exception;

    /** Returns the most bytes of a payload. */
    default int maxBytes() {
      return MAX_BYTES;
    }

    @Override
    default void close() {}
  }
}
