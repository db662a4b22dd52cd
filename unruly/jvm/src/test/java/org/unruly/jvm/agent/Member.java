package org.unruly.jvm.agent;

import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.nio.file.Files;
import java.nio.file.Path;

/** A group member in this process, for tests. */
final class Member implements AutoCloseable {
  static final Codec CODEC = new Codec(0xf1020304, 1000);
  static final long OFFSET_NS = 1_000_000_000_000_000_000L;
  static final long PATIENCE_NS = 60_000_000_000L;

  final Path folder = Files.createTempDirectory("unruly");
  final Server server;
  final Asking asking;
  private final Loops loops;

  Member() throws IOException {
    this(CODEC, Limits.USUAL, 1 << 16);
  }

  Member(Codec codec, Limits limits, int diskBytes) throws IOException {
    Path disk = diskBytes == 0 ? null : folder.resolve("disk");
    InetSocketAddress listen = new InetSocketAddress(InetAddress.getLoopbackAddress(), 0);
    AgentTerms terms = new AgentTerms(listen, folder.resolve("asking"), codec, OFFSET_NS, PATIENCE_NS, disk, diskBytes);
    // of one event loop, so that connections come in the order in which they are made
    loops = Loops.start(1);
    server = Server.open(terms, limits, loops.serving());
    asking = Asking.open(terms, loops.asking());
  }

  Caller caller() throws IOException {
    return new Caller(CODEC.cookie(), CODEC.bodyBytes(), server.port());
  }

  Asker asker() throws IOException {
    return new Asker(folder.resolve("asking"));
  }

  /** Ends it, and tells whom it has turned away. */
  long refused() {
    server.close();
    loops.close();
    return server.refused();
  }

  @Override
  public void close() throws IOException {
    asking.close();
    server.close();
    loops.close();
    // nothing may be left in it
    Files.delete(folder);
  }
}
