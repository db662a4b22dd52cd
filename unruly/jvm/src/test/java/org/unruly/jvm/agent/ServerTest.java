package org.unruly.jvm.agent;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.netty.buffer.Unpooled;
import java.io.IOException;
import java.net.DatagramPacket;
import java.net.DatagramSocket;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.FutureTask;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;
import org.unruly.jvm.Problem;
import org.unruly.jvm.agent.Codec.Head;
import org.unruly.jvm.agent.Codec.Stamps;
import org.unruly.jvm.agent.Server.Limits;

@Timeout(value = 60, threadMode = Timeout.ThreadMode.SEPARATE_THREAD)
class ServerTest {
  private static final int ALL = Head.HASH | Head.DISK | Head.BODY;
  private static final long NEVER_NS = Long.MAX_VALUE / 4;

  private static void inOrder(long beforeNs, Stamps stamps) {
    assertEquals(0, stamps.kernelReceivedNs());
    assertTrue(beforeNs + GroupMember.OFFSET_NS <= stamps.receivedNs(), stamps + " after " + beforeNs);
    assertTrue(stamps.receivedNs() <= stamps.sentNs(), stamps.toString());
    assertTrue(stamps.sentNs() <= System.nanoTime() + GroupMember.OFFSET_NS, stamps.toString());
  }

  private static byte[] changed(int at) {
    byte[] request = RpcClient.request(GroupMember.CODEC, 1, Head.BODY);
    request[at] ^= 1;
    return request;
  }

  /** Garbage; and requests that are wrong in one thing: the cookie, the length, the checksum. */
  private static List<byte[]> wrongs() {
    Codec otherRun = new Codec(GroupMember.CODEC.cookie() + 1, GroupMember.CODEC.bodyBytes());
    Codec otherBody = new Codec(GroupMember.CODEC.cookie(), GroupMember.CODEC.bodyBytes() + 1);
    return List.of(
        "GET / HTTP/1.1\r\n\r\n".getBytes(),
        RpcClient.request(otherRun, 1, 0),
        RpcClient.request(otherBody, 1, Head.BODY),
        changed(27));
  }

  @ParameterizedTest
  @ValueSource(ints = {0, Head.HASH, Head.DISK, Head.BODY, ALL})
  void everyWorkloadIsAnsweredOverTcpWithItsStampsInOrder(int flags) throws Exception {
    try (GroupMember member = new GroupMember();
        RpcClient caller = member.caller()) {
      for (long number = 0; number < 10; number++) {
        long beforeNs = System.nanoTime();
        caller.send(caller.request(number, flags));
        inOrder(beforeNs, caller.take(number, flags));
      }
    }
  }

  @ParameterizedTest
  @ValueSource(ints = {0, Head.HASH, Head.DISK, Head.BODY, ALL})
  void everyWorkloadIsAnsweredOverUdpOnTheSamePort(int flags) throws Exception {
    try (GroupMember member = new GroupMember();
        DatagramSocket socket = new DatagramSocket()) {
      socket.connect(InetAddress.getLoopbackAddress(), member.server.port());
      for (long number = 0; number < 10; number++) {
        byte[] request = RpcClient.request(GroupMember.CODEC, number, flags);
        long beforeNs = System.nanoTime();
        socket.send(new DatagramPacket(request, request.length));
        DatagramPacket packet = new DatagramPacket(new byte[1 << 16], 1 << 16);
        socket.receive(packet);
        var reply = Unpooled.wrappedBuffer(packet.getData(), 0, packet.getLength());
        inOrder(beforeNs, RpcClient.check(GroupMember.CODEC, reply, number, flags));
      }
    }
  }

  @Test
  void requestsThatComeInOneReadOrByteByByteAreAnsweredInTheirOrder() throws Exception {
    try (GroupMember member = new GroupMember();
        RpcClient caller = member.caller()) {
      for (long number = 0; number < 3; number++) {
        for (byte one : caller.request(number, 0)) {
          caller.send(new byte[] {one});
        }
      }
      byte[] request = caller.request(3, Head.BODY);
      byte[] thousand = new byte[1000 * request.length];
      for (int one = 0; one < 1000; one++) {
        System.arraycopy(request, 0, thousand, one * request.length, request.length);
      }
      // what it finds wrong comes here, and not to the end of its thread
      FutureTask<Void> reading = new FutureTask<>(() -> assertAnswered(caller));
      new Thread(reading).start();
      caller.send(thousand);
      reading.get();
    }
  }

  private static Void assertAnswered(RpcClient caller) throws IOException {
    for (long number = 0; number < 1003; number++) {
      caller.take(Math.min(number, 3), number < 3 ? 0 : Head.BODY);
    }
    return null;
  }

  @Test
  void strangersWhoSayWhatIsNoRequestOfThisRunAreClosedAndCounted() throws Exception {
    try (GroupMember member = new GroupMember()) {
      for (byte[] wrong : wrongs()) {
        try (RpcClient stranger = member.caller()) {
          stranger.send(wrong);
          stranger.awaitEnd();
        }
      }
      assertEquals(wrongs().size(), member.refused());
    }
  }

  @Test
  void aPeerWhoSaysWhatIsNoRequestIsClosedToo() throws Exception {
    try (GroupMember member = new GroupMember();
        RpcClient peer = member.caller()) {
      peer.call(1, 0);
      peer.send(changed(27));
      peer.awaitEnd();
      // as the servers in Rust count: it was no stranger
      assertEquals(0, member.refused());
    }
  }

  @Test
  void datagramsThatAreNoRequestOfThisRunAreDroppedAndCounted() throws Exception {
    List<byte[]> wrongs = new ArrayList<>(wrongs());
    byte[] request = RpcClient.request(GroupMember.CODEC, 1, 0);
    wrongs.add(Arrays.copyOf(request, request.length - 1));
    wrongs.add(Arrays.copyOf(request, request.length + 1));
    try (GroupMember member = new GroupMember();
        DatagramSocket socket = new DatagramSocket()) {
      socket.connect(InetAddress.getLoopbackAddress(), member.server.port());
      for (byte[] wrong : wrongs) {
        socket.send(new DatagramPacket(wrong, wrong.length));
      }
      socket.send(new DatagramPacket(request, request.length));
      DatagramPacket packet = new DatagramPacket(new byte[1 << 16], 1 << 16);
      socket.receive(packet);
      RpcClient.check(GroupMember.CODEC, Unpooled.wrappedBuffer(packet.getData(), 0, packet.getLength()), 1, 0);
      assertEquals(wrongs.size(), member.refused());
    }
  }

  @Test
  void aReplyFromDiskIsNotAskedOfAServerWithoutOne() throws Exception {
    try (GroupMember member = new GroupMember(GroupMember.CODEC, Limits.USUAL, 0);
        RpcClient caller = member.caller()) {
      caller.call(1, Head.BODY);
      caller.send(caller.request(2, Head.DISK));
      caller.awaitEnd();
    }
  }

  @Test
  void theDisksFileHasNoNameWhileItIsServedFrom() throws Exception {
    try (GroupMember member = new GroupMember();
        RpcClient caller = member.caller()) {
      caller.call(1, ALL);
      assertFalse(Files.exists(member.folder.resolve("disk")));
    }
  }

  @Test
  void aSilentStrangerIsClosedWhenItsTimeIsOverAndAPeerStays() throws Exception {
    Limits limits = new Limits(2_000_000_000, 256, 1024, NEVER_NS);
    try (GroupMember member = new GroupMember(GroupMember.CODEC, limits, 0);
        RpcClient peer = member.caller()) {
      peer.call(1, 0);
      try (RpcClient stranger = member.caller()) {
        stranger.awaitEnd();
      }
      peer.call(2, 0);
      assertEquals(1, member.refused());
    }
  }

  @Test
  void oneStrangerTooManyClosesTheOldestAndNoPeer() throws Exception {
    Limits limits = new Limits(NEVER_NS, 2, 1024, NEVER_NS);
    try (GroupMember member = new GroupMember(GroupMember.CODEC, limits, 0);
        RpcClient peer = member.caller()) {
      peer.call(1, 0);
      try (RpcClient oldest = member.caller();
          RpcClient second = member.caller();
          RpcClient third = member.caller()) {
        oldest.awaitEnd();
        for (RpcClient known : List.of(peer, second, third)) {
          known.call(2, 0);
        }
      }
      assertEquals(1, member.refused());
    }
  }

  @Test
  void oneConnectionTooManyIsTurnedAway() throws Exception {
    Limits limits = new Limits(NEVER_NS, 256, 2, NEVER_NS);
    try (GroupMember member = new GroupMember(GroupMember.CODEC, limits, 0);
        RpcClient first = member.caller();
        RpcClient second = member.caller()) {
      first.call(1, 0);
      second.call(1, 0);
      try (RpcClient third = member.caller()) {
        third.awaitEnd();
      }
      first.call(2, 0);
      assertEquals(1, member.refused());
    }
  }

  @Test
  void whoDoesNotReadItsRepliesIsClosed() throws Exception {
    Codec codec = new Codec(GroupMember.CODEC.cookie(), 1 << 20);
    try (GroupMember member = new GroupMember(codec, new Limits(NEVER_NS, 256, 1024, 1), 0);
        RpcClient caller = new RpcClient(codec.cookie(), codec.bodyBytes(), member.server.port())) {
      assertThrows(
          IOException.class,
          () -> {
            while (true) {
              caller.send(caller.request(1, Head.BODY));
            }
          });
    }
  }

  @Test
  void aPortThatIsTakenIsTold() throws Exception {
    try (GroupMember member = new GroupMember();
        EventLoops loops = EventLoops.start(1)) {
      var listen = new InetSocketAddress(InetAddress.getLoopbackAddress(), member.server.port());
      var config = new AgentConfig(listen, Path.of("unused"), GroupMember.CODEC, 0, 1, null, 0);
      Problem told = assertThrows(Problem.class, () -> Server.open(config, Limits.USUAL, loops.serving()));
      String begin = "netty: 127.0.0.1:" + member.server.port() + " cannot be opened for TCP: ";
      assertTrue(told.getMessage().startsWith(begin), told.getMessage());
    }
  }

  @Test
  void aPortThatIsTakenForDatagramsAloneIsTold() throws Exception {
    try (DatagramSocket taken = new DatagramSocket(0, InetAddress.getLoopbackAddress());
        EventLoops loops = EventLoops.start(1)) {
      var listen = new InetSocketAddress(InetAddress.getLoopbackAddress(), taken.getLocalPort());
      var config = new AgentConfig(listen, Path.of("unused"), GroupMember.CODEC, 0, 1, null, 0);
      Problem told = assertThrows(Problem.class, () -> Server.open(config, Limits.USUAL, loops.serving()));
      assertTrue(told.getMessage().contains(" cannot be opened for UDP: "), told.getMessage());
    }
  }
}
