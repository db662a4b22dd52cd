package org.unruly.systems;

/** Opens the connections of all workers. */
final class Callers {
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

  /** Opens and proves the connection of the first worker; a cold JVM may need several tries. */
  void start() throws Failure {
    long untilNs = System.nanoTime() + EchoSystem.START_NS;
    Failure failure;
    do {
      failure = tryFirst();
      // only a timeout may be the fault of a cold JVM
    } while (failure != null
        && failure.kind() == Failure.Kind.UNAVAILABLE
        && System.nanoTime() < untilNs);
    if (failure != null) {
      throw failure;
    }
  }

  private synchronized Failure tryFirst() {
    Connection opened = null;
    try {
      opened = client.connect();
      opened.prove();
      first = opened;
      return null;
    } catch (Exception | LinkageError thrown) {
      if (opened != null) {
        opened.close();
      }
      return Failure.of(thrown);
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
    try {
      return client.connect();
    } catch (Exception | LinkageError thrown) {
      throw Failure.of(thrown);
    }
  }
}
