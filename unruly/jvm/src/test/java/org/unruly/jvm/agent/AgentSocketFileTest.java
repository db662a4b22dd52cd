package org.unruly.jvm.agent;

import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.file.Files;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;
import org.unruly.jvm.Problem;
import org.unruly.jvm.foreign.ForeignRecord.Kind;
import org.unruly.jvm.foreign.Golden;

/** The socket itself, and what it makes of records. */
@Timeout(value = 60, threadMode = Timeout.ThreadMode.SEPARATE_THREAD)
class AgentSocketFileTest {
  @ParameterizedTest
  @ValueSource(strings = {"changed", "ask first", "two routes", "port", "transport"})
  void aWrongRecordEndsItsConnectionAndNoOther(String wrong) throws Exception {
    try (GroupMember member = new GroupMember();
        AgentClient other = member.asker();
        AgentClient asker = member.asker()) {
      other.route(member.server.port(), false);
      switch (wrong) {
        case "changed" -> {
          byte[] bytes = Golden.bytes("route");
          bytes[20] ^= 1;
          asker.send(bytes);
        }
        case "ask first" -> asker.ask(1, 0);
        case "two routes" -> {
          asker.route(member.server.port(), false);
          asker.route(member.server.port(), false);
        }
        case "port" -> asker.route(0, false);
        default -> asker.report(Kind.ROUTE, 1, 2, 3, 4, 5);
      }
      assertNull(asker.next());
      other.ask(1, 0);
      other.take(Kind.SENT, 1);
      other.take(Kind.REPLY, 1);
    }
  }

  @Test
  void aRecordOfAKindThatIsNotKnownIsIgnored() throws Exception {
    try (GroupMember member = new GroupMember();
        AgentClient asker = member.asker()) {
      asker.report(999, 1, 2, 3);
      asker.route(member.server.port(), false);
      asker.report(999, 1, 2, 3);
      asker.ask(1, 0);
      asker.take(Kind.SENT, 1);
      asker.take(Kind.REPLY, 1);
    }
  }

  @Test
  void aPathWhereSomethingIsIsTold() throws Exception {
    try (GroupMember member = new GroupMember();
        EventLoops loops = EventLoops.start(1)) {
      var path = member.folder.resolve("asking");
      var config = new AgentConfig(null, path, GroupMember.CODEC, 0, 1, null, 0);
      Problem told = assertThrows(Problem.class, () -> AgentSocket.open(config, loops.asking()));
      assertTrue(told.getMessage().startsWith("asking: " + path + " cannot be listened at: "), told.getMessage());
      assertTrue(Files.exists(path));
    }
  }
}
