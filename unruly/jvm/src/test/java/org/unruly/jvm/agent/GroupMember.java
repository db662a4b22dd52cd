package org.unruly.jvm.agent;

import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.nio.file.Files;
import java.nio.file.Path;
import org.unruly.jvm.agent.Server.Limits;

/** A group member in this process, for tests. */
final class GroupMember implements AutoCloseable {
  static final Codec CODEC = new Codec(0xf1020304, 1000);
  static final long OFFSET_NS = 1_000_000_000_000_000_000L;
  static final long TIMEOUT_NS = 60_000_000_000L;

  final Path folder = Files.createTempDirectory("unruly");
  final Server server;
  final AgentSocket asking;
  private final EventLoops loops;

  GroupMember() throws IOException {
    this(CODEC, Limits.USUAL, 1 << 16);
  }

  GroupMember(Codec codec, Limits limits, int diskBytes) throws IOException {
    Path disk = diskBytes == 0 ? null : folder.resolve("disk");
    InetSocketAddress listen = new InetSocketAddress(InetAddress.getLoopbackAddress(), 0);
    AgentConfig config = new AgentConfig(listen, folder.resolve("asking"), codec, OFFSET_NS, TIMEOUT_NS, disk, diskBytes);
    // of one event loop, so that connections come in the order in which they are made
    loops = EventLoops.start(1);
    server = Server.open(config, limits, loops.serving());
    asking = AgentSocket.open(config, loops.asking());
  }

  RpcClient caller() throws IOException {
    return new RpcClient(CODEC.cookie(), CODEC.bodyBytes(), server.port());
  }

  AgentClient asker() throws IOException {
    return new AgentClient(folder.resolve("asking"));
  }

  /** Ends it, and returns how many connections it refused. */
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
