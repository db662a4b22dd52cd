package org.unruly.jvm.protocol;

import java.io.IOException;
import java.net.DatagramPacket;
import java.net.DatagramSocket;
import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import org.unruly.jvm.stream.Inlet;
import org.unruly.jvm.stream.Intake;
import org.unruly.jvm.stream.Terms;

/** UDP by java.net: one datagram at a time, into one array. */
final class UdpInlet implements Inlet {
  private final DatagramSocket socket;
  private volatile boolean closed;

  UdpInlet(Terms terms) throws IOException {
    Datagrams.check(terms);
    socket = new DatagramSocket(null);
    socket.setReceiveBufferSize(Datagrams.BUFFER_BYTES);
    socket.bind(terms.listen());
  }

  @Override
  public int port() {
    return socket.getLocalPort();
  }

  @Override
  public int meet(InetSocketAddress peer) {
    return 0;
  }

  @Override
  public void receive(Intake intake) throws IOException {
    // one byte more than a datagram has, so that none looks whole that is not
    byte[] bytes = new byte[Datagrams.BYTES_MAX + 1];
    ByteBuffer buffer = ByteBuffer.wrap(bytes);
    DatagramPacket packet = new DatagramPacket(bytes, bytes.length);
    try {
      while (!intake.isOver() && !closed) {
        packet.setLength(bytes.length);
        socket.receive(packet);
        intake.take(buffer, 0, packet.getLength());
      }
    } catch (IOException thrown) {
      if (!closed) {
        throw thrown;
      }
    }
  }

  @Override
  public void wake() {
    closed = true;
    socket.close();
  }

  @Override
  public void close() {
    wake();
  }
}
