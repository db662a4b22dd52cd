package org.unruly.jvm.protocol;

import java.io.IOException;
import java.net.DatagramPacket;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.MulticastSocket;
import java.net.NetworkInterface;
import java.net.SocketTimeoutException;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;

/** Whether datagrams to many reach anybody: where they do not, a group would only be found to be empty. */
final class Multicast {
  private static final int TRIES = 5;
  private static final int WAIT_MS = 1000;

  private Multicast() {}

  /**
   * Sends to a group and listens to it, over the network of one address, at a port that nobody else has.
   *
   * @return whether what was sent came back
   */
  static boolean comesBack(InetAddress own, InetAddress group) {
    try (MulticastSocket socket = new MulticastSocket(0)) {
      NetworkInterface network = NetworkInterface.getByInetAddress(own);
      socket.setNetworkInterface(network);
      socket.setTimeToLive(0);
      socket.setSoTimeout(WAIT_MS);
      socket.joinGroup(new InetSocketAddress(group, 0), network);
      byte[] sent = (own.getHostAddress() + ":" + socket.getLocalPort()).getBytes(StandardCharsets.US_ASCII);
      byte[] room = new byte[sent.length + 1];
      for (int tries = 0; tries < TRIES; tries++) {
        socket.send(new DatagramPacket(sent, sent.length, group, socket.getLocalPort()));
        DatagramPacket came = new DatagramPacket(room, room.length);
        try {
          socket.receive(came);
        } catch (SocketTimeoutException thrown) {
          continue;
        }
        if (Arrays.equals(sent, Arrays.copyOf(room, came.getLength()))) {
          return true;
        }
      }
      return false;
    } catch (IOException thrown) {
      // the system has no way there, or none that we may take
      return false;
    }
  }
}
