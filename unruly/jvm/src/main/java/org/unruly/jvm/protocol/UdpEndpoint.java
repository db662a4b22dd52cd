package org.unruly.jvm.protocol;

import java.io.IOException;
import java.net.DatagramPacket;
import java.net.DatagramSocket;
import java.net.InetSocketAddress;
import java.net.PortUnreachableException;
import java.nio.ByteBuffer;
import org.unruly.jvm.Problem;
import org.unruly.jvm.stream.Endpoint.Receiver;
import org.unruly.jvm.stream.Endpoint.Sender;
import org.unruly.jvm.stream.Intake;
import org.unruly.jvm.stream.StreamConfig;

/** What both ends of UDP have in common. */
final class UdpEndpoint {
  /** The most that a datagram of IPv4 carries. */
  static final int BYTES_MAX = 65_507;

  /** Asked for; the kernel gives what {@code net.core.rmem_max} and {@code wmem_max} allow. */
  static final int BUFFER_BYTES = 64 << 20;

  private UdpEndpoint() {}

  static void check(StreamConfig config) {
    if (config.messageBytes() > BYTES_MAX) {
      String wrong = "message is " + config.messageBytes() + " bytes";
      throw new Problem("jvm-udp", wrong, "at most " + BYTES_MAX, "message=" + BYTES_MAX + ", or another protocol");
    }
  }

  /** UDP by java.net: one datagram at a time, into one array. */
  static final class UdpReceiver implements Receiver {
    private final DatagramSocket socket;
    private volatile boolean closed;

    UdpReceiver(StreamConfig config) throws IOException {
      UdpEndpoint.check(config);
      socket = new DatagramSocket(null);
      socket.setReceiveBufferSize(UdpEndpoint.BUFFER_BYTES);
      socket.bind(config.listen());
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
      byte[] bytes = new byte[UdpEndpoint.BYTES_MAX + 1];
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

  /** UDP by java.net: a datagram for each message. */
  static final class UdpSender implements Sender {
    private static final int ENDINGS = 20;

    private final DatagramSocket socket;
    private final DatagramPacket packet;
    private final ByteBuffer message;

    UdpSender(StreamConfig config) throws IOException {
      UdpEndpoint.check(config);
      byte[] bytes = new byte[config.messageBytes()];
      message = ByteBuffer.wrap(bytes);
      packet = new DatagramPacket(bytes, bytes.length);
      socket = new DatagramSocket(config.listen());
      socket.setSendBufferSize(UdpEndpoint.BUFFER_BYTES);
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
}
