package org.unruly.jvm.protocol;

import java.io.IOException;
import java.net.DatagramPacket;
import java.net.DatagramSocket;
import java.net.InetSocketAddress;
import java.net.PortUnreachableException;
import java.nio.ByteBuffer;
import org.unruly.jvm.stream.Outlet;
import org.unruly.jvm.stream.Terms;

/** UDP by java.net: a datagram for each message. */
final class UdpOutlet implements Outlet {
  private static final int ENDINGS = 20;

  private final DatagramSocket socket;
  private final DatagramPacket packet;
  private final ByteBuffer message;

  UdpOutlet(Terms terms) throws IOException {
    Datagrams.check(terms);
    byte[] bytes = new byte[terms.messageBytes()];
    message = ByteBuffer.wrap(bytes);
    packet = new DatagramPacket(bytes, bytes.length);
    socket = new DatagramSocket(terms.listen());
    socket.setSendBufferSize(Datagrams.BUFFER_BYTES);
  }

  @Override
  public int port() {
    return socket.getLocalPort();
  }

  @Override
  public int meet(InetSocketAddress peer) throws IOException {
    socket.connect(peer);
    return 2;
  }

  @Override
  public ByteBuffer message() {
    return message;
  }

  @Override
  public void send() throws IOException {
    try {
      socket.send(packet);
    } catch (PortUnreachableException thrown) {
      // of an earlier datagram: that reader is gone or not yet there, and what it does not get is lost, not our failure
    }
  }

  @Override
  public int endings() {
    return ENDINGS;
  }

  @Override
  public void wake() {
    socket.close();
  }

  @Override
  public void close() {
    wake();
  }
}
