package org.unruly.jvm.agent;

import static org.junit.jupiter.api.Assertions.assertEquals;

import io.netty.buffer.ByteBuf;
import io.netty.buffer.ByteBufUtil;
import io.netty.buffer.Unpooled;
import java.io.DataInputStream;
import java.io.IOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import org.unruly.jvm.agent.Codec.Head;
import org.unruly.jvm.agent.Codec.Stamps;

/** A peer that does what a test has it do: one connection at a time. */
final class FakePeer implements AutoCloseable {
  private final ServerSocket server = new ServerSocket(0, 16, InetAddress.getLoopbackAddress());
  private Socket connection;

  FakePeer() throws IOException {}

  int port() {
    return server.getLocalPort();
  }

  /** Waits for a connection, and its greeting. */
  void accept() throws IOException {
    connection = server.accept();
    assertEquals(new Head(0, Head.GREETING, AgentClient.CLIENT, AgentClient.SERVER), request(0));
  }

  /** The next request, which has these flags. */
  Head request(int flags) throws IOException {
    byte[] bytes = new byte[GroupMember.CODEC.requestBytes(flags)];
    new DataInputStream(connection.getInputStream()).readFully(bytes);
    return head(bytes, bytes.length);
  }

  static Head head(byte[] bytes, int length) throws IOException {
    ByteBuf request = Unpooled.wrappedBuffer(bytes, 0, length);
    assertEquals(length, GroupMember.CODEC.requestBytes(request));
    return Head.of(request);
  }

  static byte[] reply(Head head, Stamps stamps) {
    ByteBuf buffer = Unpooled.buffer();
    GroupMember.CODEC.writeReply(buffer, head, stamps);
    return ByteBufUtil.getBytes(buffer);
  }

  void send(byte[] bytes) throws IOException {
    connection.getOutputStream().write(bytes);
  }

  /** Whether the other side has ended the connection. */
  void awaitEnd() throws IOException {
    assertEquals(-1, connection.getInputStream().read());
  }

  /** Ends the connection; the next is waited for with {@link #accept}. */
  void hangUp() throws IOException {
    connection.close();
  }

  /** Ends the connection, and listens no more. */
  void leave() throws IOException {
    server.close();
    if (connection != null) {
      connection.close();
    }
  }

  @Override
  public void close() throws IOException {
    leave();
  }
}
