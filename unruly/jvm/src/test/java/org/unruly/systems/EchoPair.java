package org.unruly.systems;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.io.IOException;
import java.nio.file.Path;
import java.util.List;

/** The server of a system and a client of it, both started when a test first needs them. */
final class EchoPair implements AutoCloseable {
  /** Timeout of the client's calls, ms: above the time that a cold JVM needs. */
  private static final long TIMEOUT_MS = 3_000;

  final String system;
  final int port = EchoProcess.freePort();
  private final Path folder;
  private final List<String> serving;
  private final List<String> calling;
  private EchoProcess server;
  private EchoProcess client;
  private long requests;

  EchoPair(String system, Path folder) throws IOException {
    this.system = system;
    this.folder = folder;
    String ior = "ior=" + folder.resolve("ior");
    List<String> address = List.of("host=127.0.0.1", "port=" + port);
    switch (system) {
      case "jacorb" -> {
        serving = List.of(address.get(0), address.get(1), ior);
        calling = List.of(ior);
      }
      case "aeron" -> {
        String reply = "reply-port=" + EchoProcess.freePort();
        serving = List.of(address.get(0), address.get(1), "reply-host=127.0.0.1", reply);
        calling = serving;
      }
      default -> {
        serving = address;
        calling = address;
      }
    }
  }

  /** Returns the server, once it is ready. */
  EchoProcess server() throws IOException, InterruptedException {
    if (server == null) {
      server = new EchoProcess(folder, "serve", system, serving);
      assertEquals(system + " is ready", server.next());
    }
    return server;
  }

  /** Returns the client, once it is connected. */
  EchoProcess client() throws IOException, InterruptedException {
    if (client == null) {
      server();
      client = new EchoProcess(folder, "call", system, calling);
      client.write("unruly 1 - " + TIMEOUT_MS * 1_000_000);
      assertEquals("unruly 1", client.next());
    }
    return client;
  }

  /** Has the client call and returns the words of the result. */
  String[] call(int number, long bytes) throws IOException, InterruptedException {
    String[] words = client().call(++requests, number, bytes);
    assertEquals(Long.toString(requests), words[1]);
    return words;
  }

  void killServer() throws IOException, InterruptedException {
    server().close();
    server = null;
  }

  /** Ends the client's input and returns its exit code. */
  int endClient() throws IOException, InterruptedException {
    int code = client().end();
    client = null;
    return code;
  }

  /** Ends both by SIGTERM, so that they remove their files in memory. */
  @Override
  public void close() {
    for (EchoProcess one : new EchoProcess[] {client, server}) {
      if (one != null) {
        one.process.destroy();
        one.process.onExit().join();
      }
    }
  }
}
