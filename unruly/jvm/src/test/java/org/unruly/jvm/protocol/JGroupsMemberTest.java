package org.unruly.jvm.protocol;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.atomic.AtomicBoolean;
import org.jgroups.Message;
import org.jgroups.Receiver;
import org.jgroups.View;
import org.jgroups.protocols.PingHeader;
import org.jgroups.protocols.TP;
import org.jgroups.stack.Protocol;
import org.jgroups.stack.ProtocolStack;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;
import org.unruly.jvm.stream.Endpoint.Sender;

@Timeout(120)
class JGroupsMemberTest {
  private static final String PROTOCOL = "jgroups-tcp";

  private final BlockingQueue<Integer> sizes = new LinkedBlockingQueue<>();
  private JGroupsMember reader;
  private JGroupsMember writer;

  @BeforeEach
  void open() throws IOException {
    reader = new JGroupsMember(PROTOCOL, Streaming.config(7), null);
    reader.join(seeing(reader, new LinkedBlockingQueue<>()));
    InetSocketAddress there = new InetSocketAddress(InetAddress.getLoopbackAddress(), reader.port());
    writer = new JGroupsMember(PROTOCOL, Streaming.config(7), there);
  }

  @AfterEach
  void close() {
    writer.close();
    reader.close();
  }

  @Test
  void whoIsNotHeardAtFirstAsksAgainAndFoundsNoGroupOfItsOwn() throws Exception {
    FirstAskLost lost = new FirstAskLost();
    writer.channel().getProtocolStack().insertProtocol(lost, ProtocolStack.Position.ABOVE, TP.class);
    meet();
    assertTrue(lost.done.get(), "it has asked");
    assertEquals(2, sizes.take());
    assertTrue(sizes.isEmpty(), "one group, and no other before it");
  }

  @ParameterizedTest
  @ValueSource(booleans = {true, false})
  void aReaderThatLeavesIsMissedUnlessItHasEverything(boolean served) throws Exception {
    meet();
    if (served) {
      writer.serve(reader.channel().getAddress());
    }
    reader.close();
    assertEquals(2, sizes.take());
    assertEquals(1, sizes.take());
    writer.awaitServed(System.nanoTime() + Streaming.SETTLE_NS);
    assertEquals(!served, writer.hasLeft());
  }

  @Test
  void aWriterWhoseReaderReportsNoEndInTimeFails() throws Exception {
    try (Sender sender = Protocols.sender(PROTOCOL, Streaming.config(7))) {
      sender.meet(new InetSocketAddress(InetAddress.getLoopbackAddress(), reader.port()));
      IOException thrown = assertThrows(IOException.class, () -> sender.settle(System.nanoTime()));
      assertEquals("only 0 of 1 readers reported that they have the end", thrown.getMessage());
    }
  }

  private void meet() throws IOException {
    writer.join(seeing(writer, sizes));
    assertEquals(2, reader.awaitAll());
    assertEquals(2, writer.awaitAll());
  }

  private static Receiver seeing(JGroupsMember member, BlockingQueue<Integer> sizes) {
    return new Receiver() {
      @Override
      public void viewAccepted(View view) {
        member.see(view);
        sizes.add(view.size());
      }
    };
  }

  /** The first message that looks for members goes nowhere. */
  private static final class FirstAskLost extends Protocol {
    final AtomicBoolean done = new AtomicBoolean();

    @Override
    public Object down(Message message) {
      boolean requests = message.getHeaders().values().stream().anyMatch(it -> it instanceof PingHeader);
      return requests && done.compareAndSet(false, true) ? null : super.down(message);
    }
  }
}
