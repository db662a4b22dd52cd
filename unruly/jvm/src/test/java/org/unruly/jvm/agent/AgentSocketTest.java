package org.unruly.jvm.agent;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.net.DatagramPacket;
import java.net.DatagramSocket;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.locks.LockSupport;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;
import org.unruly.jvm.agent.Codec.Head;
import org.unruly.jvm.agent.Codec.Stamps;
import org.unruly.jvm.agent.OutcomeReporter.Failure;
import org.unruly.jvm.foreign.ForeignRecord.Kind;
import org.unruly.jvm.foreign.ForeignRecord;

@Timeout(value = 60, threadMode = Timeout.ThreadMode.SEPARATE_THREAD)
class AgentSocketTest {
  private static final Stamps STAMPS = new Stamps(0, 5, -6);
  private static final long DELAY_NS = 50_000_000;

  /** A port of this host where nobody listens. */
  private static int freePort() throws IOException {
    try (ServerSocket socket = new ServerSocket(0, 1, InetAddress.getLoopbackAddress())) {
      return socket.getLocalPort();
    }
  }

  private static void waitUntil(long untilNs) {
    while (System.nanoTime() < untilNs) {
      LockSupport.parkNanos(untilNs - System.nanoTime());
    }
  }

  @Test
  void aDelayOfThePeersIsBetweenSentAndReceived() throws Exception {
    try (GroupMember member = new GroupMember();
        FakePeer peer = new FakePeer();
        AgentClient asker = member.asker()) {
      asker.route(peer.port(), false);
      peer.accept();
      long intendedNs = asker.ask(11, Head.BODY);
      assertEquals(new Head(Head.BODY, 11, AgentClient.CLIENT, AgentClient.SERVER), peer.request(Head.BODY));
      waitUntil(System.nanoTime() + DELAY_NS);
      peer.send(FakePeer.reply(new Head(Head.BODY, 11, AgentClient.CLIENT, AgentClient.SERVER), STAMPS));
      long[] sent = asker.take(Kind.SENT, 11);
      long[] reply = asker.take(Kind.REPLY, 11);
      assertTrue(sent[1] >= intendedNs);
      assertEquals(28 + GroupMember.CODEC.bodyBytes(), sent[2]);
      assertTrue(reply[1] - sent[1] >= DELAY_NS, reply[1] - sent[1] + " ns");
      assertTrue(reply[1] <= System.nanoTime());
      assertEquals(STAMPS, new Stamps(reply[2], reply[3], reply[4]));
      assertEquals(44 + GroupMember.CODEC.bodyBytes(), reply[5]);
    }
  }

  @ParameterizedTest
  @ValueSource(booleans = {false, true})
  void whatIsDueLaterIsNotSentBeforeAndNotInTheOrderOfItsComing(boolean datagrams) throws Exception {
    try (GroupMember member = new GroupMember();
        AgentClient asker = member.asker()) {
      asker.route(member.server.port(), datagrams);
      long nowNs = System.nanoTime();
      asker.report(Kind.ASK, 1, nowNs + 2 * DELAY_NS, 0);
      asker.report(Kind.ASK, 2, nowNs + DELAY_NS, 0);
      List<Long> sent = new ArrayList<>();
      for (int told = 0; told < 4; told++) {
        ForeignRecord record = asker.next();
        if (record.kind() == Kind.SENT) {
          sent.add(record.fields()[0]);
          long intendedNs = nowNs + (3 - record.fields()[0]) * DELAY_NS;
          assertTrue(record.fields()[1] >= intendedNs, record.fields()[1] - intendedNs + " ns");
        } else {
          assertEquals(Kind.REPLY, record.kind());
          assertTrue(sent.contains(record.fields()[0]));
        }
      }
      assertEquals(List.of(2L, 1L), sent);
    }
  }

  @ParameterizedTest
  @CsvSource({"0,false", "7,false", "0,true", "7,true"})
  void aMemberAnswersAnother(int flags, boolean datagrams) throws Exception {
    try (GroupMember one = new GroupMember();
        GroupMember other = new GroupMember();
        AgentClient asker = one.asker()) {
      asker.route(other.server.port(), datagrams);
      for (long ticket = 0; ticket < 100; ticket++) {
        asker.ask(ticket, flags);
        long[] sent = asker.take(Kind.SENT, ticket);
        long[] reply = asker.take(Kind.REPLY, ticket);
        // one host, one clock
        assertTrue(sent[1] + GroupMember.OFFSET_NS <= reply[3]);
        assertTrue(reply[3] <= reply[4]);
        assertTrue(reply[4] <= reply[1] + GroupMember.OFFSET_NS);
      }
    }
  }

  @Test
  void manyThatAreDueAtOnceAreAllAnswered() throws Exception {
    try (GroupMember member = new GroupMember();
        AgentClient asker = member.asker()) {
      asker.route(member.server.port(), false);
      Thread agent = new Thread(() -> askAll(asker));
      agent.start();
      long sent = 0;
      long replies = 0;
      while (replies < 2000) {
        ForeignRecord record = asker.next();
        if (record.kind() == Kind.SENT) {
          assertEquals(sent++, record.fields()[0]);
        } else {
          assertEquals(Kind.REPLY, record.kind());
          assertEquals(replies++, record.fields()[0]);
        }
        assertTrue(replies <= sent);
      }
      agent.join();
    }
  }

  private static void askAll(AgentClient asker) {
    try {
      for (long ticket = 0; ticket < 2000; ticket++) {
        // one time for all, and none of them has timed out
        asker.report(Kind.ASK, ticket, System.nanoTime(), Head.BODY);
      }
    } catch (IOException thrown) {
      throw new IllegalStateException(thrown);
    }
  }

  @ParameterizedTest
  @ValueSource(booleans = {false, true})
  void whereNobodyListensAnAskFailsAsRefused(boolean datagrams) throws Exception {
    try (GroupMember member = new GroupMember();
        AgentClient asker = member.asker()) {
      asker.route(freePort(), datagrams);
      for (long ticket = 1; ticket < 4; ticket++) {
        asker.ask(ticket, 0);
        ForeignRecord told = asker.next();
        // a datagram is sent before the host reports that nobody listens
        told = datagrams && told.kind() == Kind.SENT ? asker.next() : told;
        assertEquals(Kind.FAILED, told.kind());
        assertEquals(ticket, told.fields()[0]);
        assertEquals(Failure.REFUSED.code(), told.fields()[1]);
      }
    }
  }

  @Test
  void whatIsOpenFailsWhenThePeerClosesAndTheConnectionIsMadeAgain() throws Exception {
    try (GroupMember member = new GroupMember();
        FakePeer peer = new FakePeer();
        AgentClient asker = member.asker()) {
      asker.route(peer.port(), false);
      peer.accept();
      asker.ask(1, 0);
      peer.request(0);
      peer.hangUp();
      asker.take(Kind.SENT, 1);
      assertEquals(Failure.RESET.code(), asker.take(Kind.FAILED, 1)[1]);
      peer.accept();
      asker.ask(2, 0);
      peer.send(FakePeer.reply(peer.request(0), STAMPS));
      asker.take(Kind.SENT, 2);
      asker.take(Kind.REPLY, 2);
    }
  }

  @Test
  void withoutAConnectionAnAskFailsWhenItIsDueAndAsRefusedOnceItHasBeenTriedAgain() throws Exception {
    try (GroupMember member = new GroupMember();
        FakePeer peer = new FakePeer();
        AgentClient asker = member.asker()) {
      asker.route(peer.port(), false);
      peer.accept();
      asker.ask(1, 0);
      peer.request(0);
      peer.leave();
      asker.take(Kind.SENT, 1);
      assertEquals(Failure.RESET.code(), asker.take(Kind.FAILED, 1)[1]);
      long intendedNs = System.nanoTime() + DELAY_NS;
      asker.report(Kind.ASK, 2, intendedNs, 0);
      long code = asker.take(Kind.FAILED, 2)[1];
      assertTrue(System.nanoTime() >= intendedNs);
      for (long ticket = 3; code != Failure.REFUSED.code(); ticket++) {
        assertEquals(Failure.DISCONNECTED.code(), code);
        asker.ask(ticket, 0);
        code = asker.take(Kind.FAILED, ticket)[1];
      }
    }
  }

  @Test
  void bytesThatAreNoReplyBreakTheConnection() throws Exception {
    try (GroupMember member = new GroupMember();
        FakePeer peer = new FakePeer();
        AgentClient asker = member.asker()) {
      asker.route(peer.port(), false);
      peer.accept();
      asker.ask(1, 0);
      peer.request(0);
      peer.send("HTTP/1.1 400 Bad Request\r\n\r\n".getBytes());
      asker.take(Kind.SENT, 1);
      assertEquals(Failure.PROTOCOL.code(), asker.take(Kind.FAILED, 1)[1]);
      peer.awaitEnd();
      peer.accept();
    }
  }

  @Test
  void aReplyThatComesInPiecesAndOneThatNobodyAskedForAreForwarded() throws Exception {
    try (GroupMember member = new GroupMember();
        FakePeer peer = new FakePeer();
        AgentClient asker = member.asker()) {
      asker.route(peer.port(), false);
      peer.accept();
      for (byte one : FakePeer.reply(new Head(0, 99, AgentClient.CLIENT, AgentClient.SERVER), STAMPS)) {
        peer.send(new byte[] {one});
      }
      assertEquals(44, asker.take(Kind.REPLY, 99)[5]);
    }
  }

  @Test
  void ofADatagramThatIsLostNothingIsTold() throws Exception {
    try (GroupMember member = new GroupMember();
        DatagramSocket peer = new DatagramSocket(0, InetAddress.getLoopbackAddress());
        AgentClient asker = member.asker()) {
      asker.route(peer.getLocalPort(), true);
      DatagramPacket packet = new DatagramPacket(new byte[1 << 16], 1 << 16);
      asker.ask(1, 0);
      asker.ask(2, 0);
      for (long expected : new long[] {Head.GREETING, 1, 2}) {
        peer.receive(packet);
        assertEquals(expected, FakePeer.head(packet.getData(), packet.getLength()).request());
      }
      // noise is none either
      peer.send(new DatagramPacket(new byte[100], 100, packet.getSocketAddress()));
      byte[] reply = FakePeer.reply(new Head(0, 2, AgentClient.CLIENT, AgentClient.SERVER), STAMPS);
      peer.send(new DatagramPacket(reply, reply.length, packet.getSocketAddress()));
      asker.take(Kind.SENT, 1);
      asker.take(Kind.SENT, 2);
      asker.take(Kind.REPLY, 2);
    }
  }

  @Test
  void thePeersConnectionEndsWithTheAskingOne() throws Exception {
    try (GroupMember member = new GroupMember();
        FakePeer peer = new FakePeer();
        AgentClient asker = member.asker()) {
      asker.route(peer.port(), false);
      peer.accept();
      asker.report(Kind.ASK, 1, System.nanoTime() + GroupMember.TIMEOUT_NS, 0);
      asker.leave();
      peer.awaitEnd();
    }
  }
}
