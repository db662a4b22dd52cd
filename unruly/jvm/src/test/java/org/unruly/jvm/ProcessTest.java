package org.unruly.jvm;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import java.nio.channels.SocketChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;
import org.unruly.jvm.foreign.ForeignRecord.Kind;
import org.unruly.jvm.foreign.ForeignRecord;
import org.unruly.jvm.stream.Header;

/** Whole processes, beside an agent. */
@Timeout(value = 60, threadMode = Timeout.ThreadMode.SEPARATE_THREAD)
class ProcessTest {
  private static final List<String> FLAGS =
      List.of("-Xmx64m", "-XX:+UseSerialGC", "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED");
  private static final long LOOPBACK = 127 << 24 | 1;
  private static final long STREAM_NS = 300_000_000;

  private static Agent stream(String role, String protocol, String... more) throws IOException {
    String[] words = {"stream", "role=" + role, "protocol=" + protocol, "listen=127.0.0.1:0", "message=2000", "sample=100", "cookie=9"};
    String[] all = java.util.Arrays.copyOf(words, words.length + more.length);
    System.arraycopy(more, 0, all, words.length, more.length);
    return new Agent(FLAGS, all);
  }

  /** From both hellos to both ends. */
  private static void stream(Agent reader, Agent writer) throws IOException, InterruptedException {
    ForeignRecord hello = reader.await(Kind.HELLO);
    assertEquals(reader.process.pid(), hello.fields()[0]);
    assertEquals(1, hello.fields()[2]);
    writer.await(Kind.HELLO);
    writer.report(Kind.PEER, LOOPBACK, hello.fields()[1]);
    assertEquals(2, writer.await(Kind.PEERS).fields()[0]);
    long startNs = System.nanoTime();
    reader.report(Kind.START, startNs, startNs + STREAM_NS);
    writer.report(Kind.START, startNs, startNs + STREAM_NS);
    assertEquals(0, writer.awaitEnd());
    assertEquals(0, reader.awaitEnd());
  }

  private static long sum(Agent agent, int field) {
    return agent.of(Kind.INTERVAL).stream().mapToLong(record -> record.fields()[field]).sum();
  }

  @Test
  void aStreamIsToldFromItsHelloToItsLastIntervalAndDone() throws Exception {
    try (Agent reader = stream("reader", "jvm-tcp");
        Agent writer = stream("writer", "jvm-tcp")) {
      stream(reader, writer);
      for (Agent agent : List.of(reader, writer)) {
        long messages = agent.of(Kind.DRAINED).get(0).fields()[0];
        assertTrue(messages > 100, messages + " messages");
        assertEquals(writer.of(Kind.DRAINED).get(0).fields()[0], messages);
        assertEquals(messages, agent.of(Kind.DRAINED).get(0).fields()[1]);
        assertEquals(messages, sum(agent, 3));
        assertEquals(2000 * messages, sum(agent, 2));
        assertTrue(sum(agent, 8) > 0);
        assertTrue(agent.of(Kind.INTERVAL).stream().allMatch(record -> record.fields()[9] > 1 << 20));
        intervalsMeet(agent);
        List<Integer> last = agent.kinds().subList(agent.kinds().size() - 2, agent.kinds().size());
        assertEquals(List.of(Kind.DRAINED, Kind.DONE), last);
      }
      assertEquals(0, sum(reader, 4) + sum(reader, 5) + sum(reader, 6));
      assertTrue(writer.of(Kind.INTERVAL).stream().allMatch(record -> record.fields()[4] == ForeignRecord.ABSENT));
      long messages = sum(reader, 3);
      long dropped = reader.of(Kind.DROPPED).stream().mapToLong(record -> record.fields()[0]).sum();
      assertEquals((messages + 99) / 100, reader.of(Kind.SAMPLE).size() + dropped);
      assertFalse(reader.of(Kind.COLLECTOR).isEmpty());
    }
  }

  private static void intervalsMeet(Agent agent) {
    List<ForeignRecord> intervals = agent.of(Kind.INTERVAL);
    for (int next = 1; next < intervals.size(); next++) {
      assertEquals(intervals.get(next - 1).fields()[1], intervals.get(next).fields()[0]);
    }
  }

  @Test
  void streamsOfAeronShareADriverOfItsOwnProcess() throws Exception {
    Path folder = Path.of("/dev/shm/unruly-test-" + ProcessHandle.current().pid());
    try (Agent driver = new Agent(FLAGS, "aeron-driver", "directory=" + folder)) {
      driver.await(Kind.HELLO);
      try (Agent reader = stream("reader", "aeron", "driver=" + folder);
          Agent writer = stream("writer", "aeron", "driver=" + folder)) {
        stream(reader, writer);
        assertFalse(Files.exists(Path.of("/dev/shm/unruly-aeron-" + writer.process.pid() + "-0")));
        assertTrue(sum(reader, 3) > 100, sum(reader, 3) + " messages");
        assertEquals(sum(writer, 3), sum(reader, 3));
        assertEquals(0, sum(reader, 4));
      }
      assertTrue(Files.exists(folder));
      driver.report(Kind.STOP);
      assertEquals(0, driver.awaitEnd());
      assertTrue(driver.of(Kind.INTERVAL).stream().mapToLong(record -> record.fields()[8]).sum() > 0, "its CPU");
      assertFalse(Files.exists(folder));
    }
  }

  /** Also where libraries have threads of their own, and a folder in memory that must go. */
  @ParameterizedTest
  @ValueSource(strings = {"jvm-udp", "jgroups-tcp", "aeron"})
  void aProcessEndsWhenItsAgentIsGone(String protocol) throws Exception {
    try (Agent agent = stream("reader", protocol)) {
      agent.await(Kind.HELLO);
      Path folder = Path.of("/dev/shm/unruly-aeron-" + agent.process.pid() + "-0");
      assertEquals(protocol.equals("aeron"), Files.exists(folder));
      agent.leave();
      // it kills itself, as no one is there who would wait for it to halt
      assertEquals(128 + 9, agent.process.waitFor());
      assertFalse(Files.exists(folder));
    }
  }

  @Test
  void aRunThatIsStoppedTellsItsEnd() throws Exception {
    try (Agent agent = stream("reader", "jvm-nio")) {
      agent.await(Kind.HELLO);
      agent.report(Kind.START, System.nanoTime(), Long.MAX_VALUE / 2);
      agent.report(Kind.STOP);
      assertEquals(0, agent.awaitEnd());
      assertEquals(0, agent.of(Kind.DRAINED).get(0).fields()[0]);
      assertEquals(1, agent.of(Kind.DONE).size());
    }
  }

  @Test
  void aWriterWithoutAReaderFailsInWords() throws Exception {
    try (Agent agent = stream("writer", "jvm-tcp")) {
      agent.await(Kind.HELLO);
      // port 1 of loopback: nobody listens there
      agent.report(Kind.PEER, LOOPBACK, 1);
      assertEquals(2, agent.awaitEnd());
      assertEquals(1, agent.of(Kind.FAILURE).size());
      assertTrue(agent.text().contains("jvm-tcp: /127.0.0.1:1 cannot be reached: "), agent.text());
      assertTrue(agent.of(Kind.DONE).isEmpty());
    }
  }

  @Test
  void aReaderWhoseWriterGoesWithoutAnEndFailsInWords() throws Exception {
    try (Agent agent = stream("reader", "jvm-tcp")) {
      int port = (int) agent.await(Kind.HELLO).fields()[1];
      agent.report(Kind.START, System.nanoTime(), Long.MAX_VALUE / 2);
      ByteBuffer message = ByteBuffer.allocate(2000);
      Header.writeCommon(message, 9, 2000);
      Header.write(message, 0, 0, 0);
      try (SocketChannel writer = SocketChannel.open(new InetSocketAddress("127.0.0.1", port))) {
        writer.write(message);
      }
      assertEquals(2, agent.awaitEnd());
      assertTrue(agent.text().contains("the stream broke after 1 messages: "), agent.text());
      assertTrue(agent.of(Kind.DONE).isEmpty());
    }
  }

  @Test
  void aHeapSmallerThanTheLiveSizeIsRefusedBeforeTheHello() throws Exception {
    try (Agent agent = new Agent(FLAGS, "collector", "live=100000000", "occupancy=0.5", "cores=1")) {
      assertEquals(2, agent.awaitEnd());
      assertEquals(agent.text().strip(), agent.onlyFailure());
      assertTrue(agent.onlyFailure().contains("wanted a heap larger than what lives in it"), agent.text());
    }
  }

  @Test
  void aCollectorsWorkloadTellsItsUseAndEndsWhenStopped() throws Exception {
    try (Agent agent = new Agent(FLAGS, "collector", "live=20000000", "occupancy=0.3", "cores=1")) {
      assertEquals(-1, agent.await(Kind.HELLO).fields()[1]);
      ForeignRecord first = agent.await(Kind.COLLECTOR);
      ForeignRecord second = agent.await(Kind.COLLECTOR);
      assertTrue(second.fields()[4] > first.fields()[4], "CPU time of the load");
      assertTrue(second.fields()[5] > first.fields()[5], "elements replaced");
      assertTrue(second.fields()[1] > 0, "collections");
      assertTrue(second.fields()[3] > 20_000_000, "heap used");
      agent.report(Kind.STOP);
      assertEquals(0, agent.awaitEnd());
    }
  }

  @Test
  void anOptionThatIsNotKnownIsTold() throws Exception {
    try (Agent agent = stream("reader", "jvm-tcp", "colour=red")) {
      assertEquals(2, agent.awaitEnd());
      assertTrue(agent.onlyFailure().startsWith("options: 'colour=red' is not known; wanted key=value of "), agent.text());
    }
  }
}
