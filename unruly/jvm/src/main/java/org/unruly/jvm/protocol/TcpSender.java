package org.unruly.jvm.protocol;

import java.io.IOException;
import java.io.OutputStream;
import java.net.InetSocketAddress;
import java.net.Socket;
import java.nio.ByteBuffer;
import org.unruly.jvm.protocol.Protocols.Closing;
import org.unruly.jvm.stream.Endpoint.Sender;
import org.unruly.jvm.stream.StreamConfig;

/** TCP by java.net: one write of a byte array for each message. */
final class TcpSender implements Sender {
  private static final int CONNECT_MS = 10_000;

  private final Socket socket = new Socket();
  private final byte[] bytes;
  private final ByteBuffer message;
  private OutputStream stream;

  TcpSender(StreamConfig config) throws IOException {
    bytes = new byte[config.messageBytes()];
    message = ByteBuffer.wrap(bytes);
    socket.bind(config.listen());
  }

  @Override
  public int port() {
    return socket.getLocalPort();
  }

  @Override
  public int meet(InetSocketAddress peer) throws IOException {
    socket.connect(peer, CONNECT_MS);
    stream = socket.getOutputStream();
    return 2;
  }

  @Override
  public ByteBuffer message() {
    return message;
  }

  @Override
  public void send() throws IOException {
    stream.write(bytes);
  }

  @Override
  public void wake() {
    Closing.quietly(socket);
  }

  @Override
  public void close() {
    wake();
  }
}
