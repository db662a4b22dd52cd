package org.unruly.systems;

/** Opens the connections of all workers, and proves each by an empty echo before it is used. */
final class Callers {
  private static final byte[] EMPTY = {};

  private final EchoSystem.Client client;
  private final String system;
  private Connection first;

  /**
   * Wraps a client.
   *
   * @param system its name, for people
   */
  Callers(EchoSystem.Client client, String system) {
    this.client = client;
    this.system = system;
  }

  /** Opens the connection of the first worker; a slow start of the JVM may take several tries. */
  void start() throws Failure {
    long untilNs = System.nanoTime() + EchoSystem.START_NS;
    Connection opened = null;
    while (opened == null) {
      try {
        opened = connect();
      } catch (Failure thrown) {
        // only a timeout may be the fault of a cold JVM
        if (thrown.kind() != Failure.Kind.UNAVAILABLE || System.nanoTime() > untilNs) {
          throw thrown;
        }
      }
    }
    synchronized (this) {
      first = opened;
    }
  }

  /** Returns a connection that nobody else has, after at most one attempt to connect. */
  Connection open() throws Failure {
    synchronized (this) {
      if (first != null) {
        Connection taken = first;
        first = null;
        return taken;
      }
    }
    return connect();
  }

  /** Throws a failure that names the limit if a payload is above it. */
  void checkBytes(long bytes) throws Failure {
    if (bytes > client.maxBytes()) {
      String limit = "the limit of " + system + ", " + client.maxBytes() + " bytes";
      String words = "a payload of " + bytes + " bytes is above " + limit;
      throw new Failure(Failure.Kind.STORE, words);
    }
  }

  private Connection connect() throws Failure {
    Connection opened = null;
    try {
      opened = client.connect();
      opened.call(EMPTY);
      opened.check(EMPTY);
      return opened;
    } catch (Exception | LinkageError thrown) {
      if (opened != null) {
        opened.close();
      }
      throw Failure.of(thrown);
    }
  }
}
