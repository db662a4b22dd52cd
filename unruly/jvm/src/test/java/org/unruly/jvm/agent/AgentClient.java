package org.unruly.jvm.agent;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;

import java.io.IOException;
import java.net.UnixDomainSocketAddress;
import java.nio.ByteBuffer;
import java.nio.channels.SocketChannel;
import java.nio.file.Path;
import org.unruly.jvm.foreign.ForeignRecord.Kind;
import org.unruly.jvm.foreign.ForeignRecord;

/** The agent's side of an asking connection, for tests. */
public final class AgentClient implements AutoCloseable {
  static final int SERVER = 7;
  static final int CLIENT = 8;
  private static final long LOOPBACK = 127 << 24 | 1;

  private final SocketChannel channel;

  /** Connects to where a member listens. */
  public AgentClient(Path path) throws IOException {
    channel = SocketChannel.open(UnixDomainSocketAddress.of(path));
  }

  /** Says whom it asks: a peer of this host. */
  public void route(int port, boolean datagrams) throws IOException {
    report(Kind.ROUTE, SERVER, CLIENT, LOOPBACK, port, datagrams ? 1 : 0);
  }

  /** Asks at once, and returns the time of that. */
  public long ask(long ticket, int flags) throws IOException {
    long nowNs = System.nanoTime();
    report(Kind.ASK, ticket, nowNs, flags);
    return nowNs;
  }

  void report(int kind, long... fields) throws IOException {
    ByteBuffer buffer = ByteBuffer.allocate(ForeignRecord.BYTES);
    ForeignRecord.write(buffer, kind, fields, 0, fields.length);
    send(buffer.array());
  }

  void send(byte[] bytes) throws IOException {
    ByteBuffer buffer = ByteBuffer.wrap(bytes);
    while (buffer.hasRemaining()) {
      channel.write(buffer);
    }
  }

  /** The next record must be this one's; its fields. */
  public long[] take(int kind, long ticket) throws IOException {
    ForeignRecord record = next();
    assertNotNull(record, "the connection has ended");
    assertEquals(kind + " of " + ticket, record.kind() + " of " + record.fields()[0]);
    return record.fields();
  }

  /** The next record, or null at the connection's end. */
  ForeignRecord next() throws IOException {
    ByteBuffer buffer = ByteBuffer.allocate(ForeignRecord.BYTES);
    while (buffer.hasRemaining()) {
      if (channel.read(buffer) < 0) {
        return null;
      }
    }
    return ForeignRecord.read(buffer.flip());
  }

  /** Ends the connection before the test's end. */
  void leave() throws IOException {
    channel.close();
  }

  @Override
  public void close() throws IOException {
    channel.close();
  }
}
