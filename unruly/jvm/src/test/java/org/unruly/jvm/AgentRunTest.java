package org.unruly.jvm;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.net.Socket;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import org.unruly.jvm.agent.AgentClient;
import org.unruly.jvm.agent.RpcClient;
import org.unruly.jvm.foreign.ForeignRecord.Kind;
import org.unruly.jvm.foreign.ForeignRecord;

/** Whole group members as processes of their own, beside an agent. */
@Timeout(value = 60, threadMode = Timeout.ThreadMode.SEPARATE_THREAD)
class AgentRunTest {
  private static final List<String> FLAGS = List.of("-Xmx64m", "-XX:+UseSerialGC");
  private static final int COOKIE = 9;
  private static final int BODY_BYTES = 500;
  private static final int ALL = 7;

  @TempDir Path folder;

  private Agent member(int diskBytes) throws IOException {
    return new Agent(
        FLAGS,
        "agent",
        "asking=" + asking(),
        "listen=127.0.0.1:0",
        "cookie=" + COOKIE,
        "body=" + BODY_BYTES,
        "wall-offset=-5",
        "timeout=30000000000",
        "disk=" + folder.resolve("disk"),
        "disk-bytes=" + diskBytes);
  }

  private Path asking() {
    return folder.resolve("asking");
  }

  private void nothingIsLeft() throws IOException {
    if (!Files.exists(folder)) {
      // it was deleted with its last file
      return;
    }
    try (var files = Files.list(folder)) {
      assertEquals(List.of(), files.toList());
    }
  }

  @Test
  void itAnswersAsksAndEndsWhenItIsStopped() throws Exception {
    try (Agent agent = member(1 << 16)) {
      ForeignRecord hello = agent.await(Kind.HELLO);
      int port = (int) hello.fields()[1];
      assertEquals(agent.process.pid(), hello.fields()[0]);
      assertTrue(Files.exists(asking()));
      try (RpcClient caller = new RpcClient(COOKIE, BODY_BYTES, port);
          Socket stranger = new Socket("127.0.0.1", port);
          AgentClient asker = new AgentClient(asking())) {
        for (long number = 0; number < 20; number++) {
          caller.call(number, (int) number % (ALL + 1));
        }
        asker.route(port, true);
        asker.ask(3, ALL);
        asker.take(Kind.SENT, 3);
        asker.take(Kind.REPLY, 3);
        stranger.getOutputStream().write("what?".getBytes());
        assertEquals(-1, stranger.getInputStream().read());
        agent.await(Kind.COLLECTOR);
        agent.report(Kind.STOP);
        assertEquals(0, agent.awaitEnd());
      }
      List<Integer> last = agent.kinds().subList(agent.kinds().size() - 2, agent.kinds().size());
      assertEquals(List.of(Kind.REFUSED, Kind.DONE), last);
      assertEquals(1, agent.of(Kind.REFUSED).get(0).fields()[0]);
      assertEquals(List.of(), agent.of(Kind.INTERVAL));
      assertEquals("", agent.text());
      nothingIsLeft();
    }
  }

  @Test
  void itEndsWhenItsAgentIsGoneAndLeavesNothing() throws Exception {
    try (Agent agent = member(1 << 16)) {
      agent.await(Kind.HELLO);
      assertTrue(Files.exists(asking()));
      agent.leave();
      assertEquals(128 + 9, agent.process.waitFor());
      assertFalse(Files.exists(asking()));
      nothingIsLeft();
    }
  }

  @Test
  void aRingThatIsTooShortForAReplyIsRefused() throws Exception {
    try (Agent agent = member(543)) {
      assertEquals(2, agent.awaitEnd());
      String begin = "options: disk-bytes is 543; wanted a whole number from 544 to ";
      assertTrue(agent.onlyFailure().startsWith(begin), agent.onlyFailure());
      nothingIsLeft();
    }
  }
}
