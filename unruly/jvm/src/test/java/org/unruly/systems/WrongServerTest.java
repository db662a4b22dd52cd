package org.unruly.systems;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.EOFException;
import java.io.IOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.file.Path;
import java.util.List;
import java.util.function.UnaryOperator;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** Clients of servers that send no echo, or a wrong one. */
@Timeout(value = 30, threadMode = Timeout.ThreadMode.SEPARATE_THREAD)
class WrongServerTest {
  private static final long TIMEOUT_NS = 300_000_000;

  @TempDir private Path folder;
  private ServerSocket server;
  private EchoProcess client;

  /** Starts a server with the messages of jvm-tcp, and a client of it. */
  private void start(String system, UnaryOperator<byte[]> reply) throws Exception {
    server = new ServerSocket(0, 10, InetAddress.getLoopbackAddress());
    Thread thread = new Thread(() -> serve(reply), "wrong");
    thread.setDaemon(true);
    thread.start();
    List<String> address = List.of("host=127.0.0.1", "port=" + server.getLocalPort());
    client = new EchoProcess(folder, "call", system, address);
    client.write("unruly 1 - " + TIMEOUT_NS);
    assertEquals("unruly 1", client.next());
  }

  /** Answers the connections of the only worker, one after the other. */
  private void serve(UnaryOperator<byte[]> reply) {
    while (true) {
      try (Socket socket = server.accept()) {
        DataInputStream in = new DataInputStream(socket.getInputStream());
        DataOutputStream out = new DataOutputStream(socket.getOutputStream());
        while (true) {
          byte[] request = new byte[in.readInt()];
          in.readFully(request);
          byte[] sent = request.length == 0 ? request : reply.apply(request);
          if (sent != null) {
            out.writeInt(sent.length);
            out.write(sent);
          }
        }
      } catch (EOFException thrown) {
        // the client has dropped this connection
      } catch (IOException thrown) {
        return;
      }
    }
  }

  @AfterEach
  void stop() throws IOException {
    client.close();
    server.close();
  }

  private void isReported(String kind, String words) throws Exception {
    for (int request = 1; request <= 2; request++) {
      String[] result = client.call(request, 0, 100);
      assertEquals("failed", result[0]);
      assertEquals(kind, result[4]);
      assertEquals(words, result[5]);
    }
  }

  @ParameterizedTest
  @ValueSource(strings = {"jvm-tcp", "jvm-nio"})
  void anEchoWithAnotherByteIsAFailure(String system) throws Exception {
    start(system, WrongServerTest::flipped);
    isReported("store", "the echo differs at byte 99");
  }

  private static byte[] flipped(byte[] request) {
    byte[] other = request.clone();
    other[other.length - 1]++;
    return other;
  }

  @ParameterizedTest
  @ValueSource(strings = {"jvm-tcp", "jvm-nio"})
  void anEchoOfAnotherLengthIsAFailure(String system) throws Exception {
    start(system, request -> new byte[request.length - 1]);
    isReported("store", "an echo of 99 bytes came back for 100");
  }

  @ParameterizedTest
  @ValueSource(strings = {"jvm-tcp", "jvm-nio"})
  void theEchoOfAnotherRequestIsAFailure(String system) throws Exception {
    byte[][] first = new byte[1][];
    start(
        system,
        request -> {
          first[0] = first[0] == null ? request : first[0];
          return first[0];
        });
    assertEquals("done", client.call(7, 0, 100)[0]);
    isReported("store", "the echo differs at byte 0");
  }

  @ParameterizedTest
  @ValueSource(strings = {"jvm-tcp", "jvm-nio"})
  void aServerThatDoesNotAnswerIsLeftAfterTheTimeout(String system) throws Exception {
    start(system, request -> null);
    String[] result = client.call(1, 0, 100);
    assertEquals("unavailable", result[4]);
    assertTrue(Long.parseLong(result[3]) - Long.parseLong(result[2]) >= TIMEOUT_NS);
  }

  @ParameterizedTest
  @ValueSource(strings = {"jvm-tcp", "jvm-nio"})
  void theClientEndsWithItsInputWhileACallIsOpen(String system) throws Exception {
    start(system, request -> null);
    client.write("call 1 0 100");
    assertEquals(0, client.end());
  }
}
