package org.unruly.jvm.protocol;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.ByteBuffer;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;
import org.unruly.jvm.foreign.ForeignRecord.Kind;
import org.unruly.jvm.foreign.ForeignRecord;

@Timeout(value = 60, threadMode = Timeout.ThreadMode.SEPARATE_THREAD)
class StreamTest {
  private static final int MESSAGES = 5_000;

  @ParameterizedTest
  @ValueSource(strings = {"jvm-tcp", "jvm-nio", "jgroups-udp", "jgroups-tcp", "aeron"})
  void aReliableProtocolBringsEveryMessageOnceAndInOrder(String protocol) throws Exception {
    try (Streaming streaming = new Streaming(protocol, 1)) {
      CompletableFuture<Void> received = streaming.receive();
      streaming.write(MESSAGES);
      received.get(30, TimeUnit.SECONDS);
      assertEquals(MESSAGES, streaming.sent.messages());
      assertEquals(MESSAGES, streaming.accounting.messages());
      assertEquals(MESSAGES, streaming.accounting.next());
      assertEquals(0, streaming.accounting.lost());
      assertEquals(0, streaming.accounting.duplicated());
      assertEquals(0, streaming.accounting.reordered());
      oneInAHundredIsSampled(streaming);
    }
  }

  private static void oneInAHundredIsSampled(Streaming streaming) {
    ByteBuffer samples = ByteBuffer.allocate((MESSAGES / 100 + 1) * ForeignRecord.BYTES);
    assertEquals(MESSAGES / 100, streaming.ring.drain(samples));
    samples.flip();
    for (long sample = 0; sample < MESSAGES / 100; sample++) {
      ForeignRecord record = ForeignRecord.read(samples);
      assertEquals(Kind.SAMPLE, record.kind());
      assertEquals(100 * sample, record.fields()[0]);
      // one clock: a message is received after it was sent
      assertTrue(record.fields()[1] > 0 && record.fields()[2] > record.fields()[1]);
      assertEquals(Streaming.MESSAGE_BYTES, record.fields()[3]);
    }
  }

  @ParameterizedTest
  @ValueSource(strings = {"jvm-udp"})
  void ofAnUnreliableProtocolEveryMessageHasComeOrIsLost(String protocol) throws Exception {
    try (Streaming streaming = new Streaming(protocol, 1)) {
      CompletableFuture<Void> received = streaming.receive();
      streaming.write(MESSAGES);
      received.get(30, TimeUnit.SECONDS);
      assertTrue(streaming.accounting.messages() > 0);
      assertEquals(MESSAGES, streaming.accounting.next());
      assertEquals(MESSAGES, streaming.accounting.messages() + streaming.accounting.lost());
    }
  }

  @ParameterizedTest
  @ValueSource(strings = {"jvm-tcp", "jvm-nio", "jvm-udp", "jgroups-udp", "jgroups-tcp", "aeron"})
  void aReaderToWhomNobodyWritesEndsWhenItIsWoken(String protocol) throws Exception {
    try (Streaming streaming = new Streaming(protocol, 3)) {
      CompletableFuture<Void> received = streaming.receive();
      streaming.receiver.wake();
      received.get(30, TimeUnit.SECONDS);
      assertEquals(0, streaming.accounting.messages());
    }
  }
}
