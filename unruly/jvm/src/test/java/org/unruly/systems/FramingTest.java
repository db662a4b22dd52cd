package org.unruly.systems;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;

import java.io.DataInputStream;
import java.io.IOException;
import java.net.InetAddress;
import java.net.Socket;
import java.net.SocketException;
import java.nio.ByteBuffer;
import java.util.List;
import java.util.Set;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;
import org.unruly.jvm.Options;

/** The servers of jvm-tcp and jvm-nio, when messages are wrong or come in pieces. */
@Timeout(value = 30, threadMode = Timeout.ThreadMode.SEPARATE_THREAD)
class FramingTest {
  private static final int TIMEOUT_MS = 10_000;

  private static Socket connect(String system) throws Exception {
    int port = EchoProcess.freePort();
    List<String> words = List.of("host=127.0.0.1", "port=" + port);
    EchoSystem echo = system.equals("jvm-tcp") ? new TcpEcho() : new NioEcho();
    echo.serve(new Options(words, Set.of("host", "port")));
    return connect(port);
  }

  private static Socket connect(int port) throws IOException {
    Socket socket = new Socket(InetAddress.getLoopbackAddress(), port);
    socket.setSoTimeout(TIMEOUT_MS);
    return socket;
  }

  private static void send(Socket socket, int length, byte[] bytes) throws IOException {
    ByteBuffer message = ByteBuffer.allocate(Integer.BYTES + bytes.length);
    socket.getOutputStream().write(message.putInt(length).put(bytes).array());
  }

  private static void isEnded(Socket socket) throws IOException {
    int read;
    try {
      read = socket.getInputStream().read();
    } catch (SocketException thrown) {
      // the server left bytes unread, so the kernel resets the connection
      read = -1;
    }
    assertEquals(-1, read);
  }

  private static void isEchoed(Socket socket, byte[] bytes) throws IOException {
    send(socket, bytes.length, bytes);
    byte[] reply = new byte[Integer.BYTES + bytes.length];
    new DataInputStream(socket.getInputStream()).readFully(reply);
    byte[] wanted = ByteBuffer.allocate(reply.length).putInt(bytes.length).put(bytes).array();
    assertArrayEquals(wanted, reply);
  }

  @ParameterizedTest
  @ValueSource(strings = {"jvm-tcp", "jvm-nio"})
  void aLengthAbove64MebibytesOrBelowZeroEndsThatConnectionOnly(String system) throws Exception {
    try (Socket kept = connect(system)) {
      for (int length : new int[] {EchoSystem.MAX_BYTES + 1, -1, Integer.MIN_VALUE}) {
        try (Socket wrong = connect(kept.getPort())) {
          send(wrong, length, new byte[10]);
          isEnded(wrong);
        }
      }
      isEchoed(kept, new byte[] {1, 2, 3});
    }
  }

  @ParameterizedTest
  @ValueSource(strings = {"jvm-tcp", "jvm-nio"})
  void aMessageThatStopsHalfwayHarmsNoOtherConnection(String system) throws Exception {
    try (Socket kept = connect(system);
        Socket open = connect(kept.getPort())) {
      // its length is allowed, but must not reserve memory
      send(open, EchoSystem.MAX_BYTES, new byte[10]);
      try (Socket left = connect(kept.getPort())) {
        send(left, 100, new byte[10]);
      }
      isEchoed(kept, new byte[100_000]);
    }
  }

  @ParameterizedTest
  @ValueSource(strings = {"jvm-tcp", "jvm-nio"})
  void aMessageInSinglePiecesIsEchoedWhole(String system) throws Exception {
    try (Socket socket = connect(system)) {
      socket.setTcpNoDelay(true);
      // the length of this message must not be taken for that of the next
      isEchoed(socket, new byte[100]);
      for (byte piece : new byte[] {0, 0, 0, 2, 5}) {
        socket.getOutputStream().write(piece);
      }
      socket.getOutputStream().write(6);
      byte[] reply = new byte[6];
      new DataInputStream(socket.getInputStream()).readFully(reply);
      assertArrayEquals(new byte[] {0, 0, 0, 2, 5, 6}, reply);
      isEchoed(socket, new byte[0]);
    }
  }
}
