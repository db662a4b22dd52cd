package org.unruly.jvm.agent;

import static org.junit.jupiter.api.Assertions.assertEquals;

import io.netty.buffer.ByteBuf;
import io.netty.buffer.ByteBufUtil;
import io.netty.buffer.Unpooled;
import java.io.DataInputStream;
import java.io.IOException;
import java.net.InetAddress;
import java.net.Socket;
import java.net.SocketException;
import org.unruly.jvm.agent.Codec.Head;
import org.unruly.jvm.agent.Codec.Stamps;

/** A client of a group member as others write them: sockets that wait. */
public final class RpcClient implements AutoCloseable {
  private static final int CLIENT = 1;
  private static final int SERVER = 2;

  private final Codec codec;
  private final Socket socket;

  /** Connects to a member of this host. */
  public RpcClient(int cookie, int bodyBytes, int port) throws IOException {
    codec = new Codec(cookie, bodyBytes);
    socket = new Socket(InetAddress.getLoopbackAddress(), port);
    socket.setTcpNoDelay(true);
  }

  static byte[] request(Codec codec, long number, int flags) {
    ByteBuf buffer = Unpooled.buffer();
    codec.writeRequest(buffer, new Head(flags, number, CLIENT, SERVER));
    return ByteBufUtil.getBytes(buffer);
  }

  byte[] request(long number, int flags) {
    return request(codec, number, flags);
  }

  void send(byte[] bytes) throws IOException {
    socket.getOutputStream().write(bytes);
  }

  /** Asks, and checks the answer. */
  public void call(long number, int flags) throws IOException {
    send(request(number, flags));
    take(number, flags);
  }

  /** The next reply must be this one's. */
  Stamps take(long number, int flags) throws IOException {
    byte[] bytes = new byte[codec.replyBytes(flags)];
    new DataInputStream(socket.getInputStream()).readFully(bytes);
    return check(codec, Unpooled.wrappedBuffer(bytes), number, flags);
  }

  static Stamps check(Codec codec, ByteBuf reply, long number, int flags) throws IOException {
    assertEquals(reply.readableBytes(), codec.replyBytes(reply));
    assertEquals(new Head(flags, number, CLIENT, SERVER), Head.of(reply));
    return Stamps.of(reply);
  }

  /** Waits for the connection's end; nothing more may come before it. */
  void awaitEnd() throws IOException {
    try {
      assertEquals(-1, socket.getInputStream().read());
    } catch (SocketException thrown) {
      // closed with bytes of ours unread
    }
  }

  @Override
  public void close() throws IOException {
    socket.close();
  }
}
