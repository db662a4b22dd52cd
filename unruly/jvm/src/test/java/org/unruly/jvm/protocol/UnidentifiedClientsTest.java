package org.unruly.jvm.protocol;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.EOFException;
import java.io.IOException;
import java.net.DatagramPacket;
import java.net.DatagramSocket;
import java.net.Socket;
import java.nio.ByteBuffer;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;
import org.unruly.jvm.Problem;
import org.unruly.jvm.stream.Endpoint.Sender;
import org.unruly.jvm.stream.Header;

@Timeout(value = 60, threadMode = Timeout.ThreadMode.SEPARATE_THREAD)
class UnidentifiedClientsTest {
  private static final int COOKIE = 5;
  private static final int MESSAGES = 1_000;

  /** A message as a run with that cookie would send it. */
  private static byte[] message(int cookie, int flags, long sequence) {
    ByteBuffer message = ByteBuffer.allocate(Streaming.MESSAGE_BYTES);
    Header.writeCommon(message, cookie, Streaming.MESSAGE_BYTES);
    Header.write(message, flags, sequence, 0);
    return message.array();
  }

  @ParameterizedTest
  @ValueSource(strings = {"jvm-tcp", "jvm-nio"})
  void whoSpeaksOfAnotherRunIsLetGoAndTheWriterIsServed(String protocol) throws Exception {
    try (Streaming streaming = new Streaming(protocol, COOKIE)) {
      CompletableFuture<Void> received = streaming.receive();
      try (Socket stranger = new Socket()) {
        stranger.connect(streaming.reader());
        stranger.getOutputStream().write(message(COOKIE + 1, Header.END, 7));
        assertEquals(-1, stranger.getInputStream().read());
      }
      streaming.write(MESSAGES);
      received.get(30, TimeUnit.SECONDS);
      assertEquals(MESSAGES, streaming.accounting.messages());
      assertEquals(0, streaming.accounting.lost());
    }
  }

  @ParameterizedTest
  @ValueSource(strings = {"jvm-tcp", "jvm-nio"})
  void whoSaysNothingKeepsTheWriterFromNothing(String protocol) throws Exception {
    try (Streaming streaming = new Streaming(protocol, COOKIE);
        Socket silent = new Socket();
        Socket slow = new Socket()) {
      CompletableFuture<Void> received = streaming.receive();
      silent.connect(streaming.reader());
      slow.connect(streaming.reader());
      slow.getOutputStream().write(message(COOKIE, 0, 7), 0, 100);
      streaming.write(MESSAGES);
      received.get(30, TimeUnit.SECONDS);
      assertEquals(MESSAGES, streaming.accounting.messages());
      assertEquals(0, streaming.accounting.lost());
      assertEquals(-1, silent.getInputStream().read());
    }
  }

  @Test
  void datagramsOfAnotherRunOrSizeAreIgnored() throws Exception {
    try (Streaming streaming = new Streaming("jvm-udp", COOKIE);
        DatagramSocket stranger = new DatagramSocket()) {
      CompletableFuture<Void> received = streaming.receive();
      stranger.connect(streaming.reader());
      for (int size : new int[] {0, 1, 31, 1999, 2000}) {
        stranger.send(new DatagramPacket(message(COOKIE + 1, Header.END, 7), size));
        stranger.send(new DatagramPacket(new byte[2000], size));
      }
      stranger.send(new DatagramPacket(message(COOKIE, Header.END, 7), 1999));
      streaming.write(MESSAGES);
      received.get(30, TimeUnit.SECONDS);
      assertEquals(MESSAGES, streaming.accounting.next());
      assertEquals(MESSAGES, streaming.accounting.messages() + streaming.accounting.lost());
    }
  }

  @ParameterizedTest
  @ValueSource(strings = {"jvm-tcp", "jvm-nio"})
  void aWriterThatLeavesWithoutTellingTheEndIsToldOf(String protocol) throws Exception {
    try (Streaming streaming = new Streaming(protocol, COOKIE)) {
      CompletableFuture<Void> received = streaming.receive();
      try (Socket writer = new Socket()) {
        writer.connect(streaming.reader());
        writer.getOutputStream().write(message(COOKIE, 0, 0));
      }
      var thrown = assertThrows(ExecutionException.class, () -> received.get(30, TimeUnit.SECONDS));
      assertEquals(EOFException.class, thrown.getCause().getClass());
      assertEquals(1, streaming.accounting.messages());
    }
  }

  /** Its first messages fill the buffers between them; then it waits for a reader that never reads. */
  @ParameterizedTest
  @ValueSource(strings = {"jvm-tcp", "jvm-nio"})
  void aWriterThatIsHeldUpEndsWhenItIsWoken(String protocol) throws Exception {
    try (Streaming streaming = new Streaming(protocol, COOKIE);
        Sender sender = Protocols.sender(protocol, Streaming.config(COOKIE))) {
      sender.meet(streaming.reader());
      CompletableFuture<Void> ended = new CompletableFuture<>();
      Thread writer =
          new Thread(
              () -> {
                try {
                  while (true) {
                    sender.send();
                  }
                } catch (IOException | RuntimeException thrown) {
                  ended.complete(null);
                }
              });
      writer.start();
      sender.wake();
      ended.get(30, TimeUnit.SECONDS);
    }
  }

  @ParameterizedTest
  @ValueSource(strings = {"jvm-tcp", "jvm-nio", "jvm-udp"})
  void aPortThatIsTakenIsTold(String protocol) {
    try (Streaming streaming = new Streaming(protocol, COOKIE)) {
      int port = streaming.receiver.port();
      var config = Streaming.config(COOKIE, port, Streaming.MESSAGE_BYTES);
      String told = assertThrows(Problem.class, () -> Protocols.receiver(protocol, config)).getMessage();
      assertTrue(told.startsWith(protocol + ": 127.0.0.1:" + port + " cannot be opened: "), told);
    }
  }

  @ParameterizedTest
  @ValueSource(strings = {"jvm-udp", "aeron"})
  void aMessageLargerThanTheProtocolTakesIsRefused(String protocol) {
    var config = Streaming.config(COOKIE, 0, 1 << 20);
    try (Streaming streaming = new Streaming(protocol, COOKIE)) {
      String told =
          assertThrows(
                  Problem.class,
                  () -> {
                    try (Sender sender = Protocols.sender(protocol, config)) {
                      sender.meet(streaming.reader());
                    }
                  })
              .getMessage();
      assertTrue(told.startsWith(protocol + ": message is 1048576 bytes; wanted at most "), told);
    }
  }
}
