package org.unruly.jvm.protocol;

import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.atomic.AtomicBoolean;
import org.unruly.jvm.foreign.RecordRing;
import org.unruly.jvm.stream.Accounting;
import org.unruly.jvm.stream.Endpoint.Receiver;
import org.unruly.jvm.stream.Endpoint.Sender;
import org.unruly.jvm.stream.Intake;
import org.unruly.jvm.stream.StreamConfig;
import org.unruly.jvm.stream.StreamCounts.SentCounts;
import org.unruly.jvm.stream.Writer.Schedule;
import org.unruly.jvm.stream.Writer;

/** Both ends of a stream in this process, over loopback, with ports that the kernel chooses. */
final class Streaming implements AutoCloseable {
  static final int MESSAGE_BYTES = 2000;
  static final long SETTLE_NS = 5_000_000_000L;

  final Accounting accounting = new Accounting();
  final SentCounts sent = new SentCounts();
  final RecordRing ring = new RecordRing(8192);
  final Receiver receiver;
  private final String protocol;
  private final int cookie;
  private final AtomicBoolean closed = new AtomicBoolean();

  Streaming(String protocol, int cookie) {
    this.protocol = protocol;
    this.cookie = cookie;
    receiver = Protocols.receiver(protocol, config(cookie));
  }

  static StreamConfig config(int cookie) {
    return config(cookie, 0, MESSAGE_BYTES);
  }

  static StreamConfig config(int cookie, int port, int messageBytes) {
    return new StreamConfig(new InetSocketAddress(InetAddress.getLoopbackAddress(), port), messageBytes, 100, cookie, 1, false, null);
  }

  InetSocketAddress reader() {
    return new InetSocketAddress(InetAddress.getLoopbackAddress(), receiver.port());
  }

  /** Starts the reader; done when it has ended. */
  CompletableFuture<Void> receive() {
    CompletableFuture<Void> done = new CompletableFuture<>();
    Thread thread =
        new Thread(
            () -> {
              try {
                receiver.receive(new Intake(config(cookie), accounting, ring));
                // as a run does: a group's writer waits for it
                close();
                done.complete(null);
              } catch (IOException | RuntimeException thrown) {
                done.completeExceptionally(thrown);
              }
            });
    thread.setDaemon(true);
    thread.start();
    return done;
  }

  /** Writes this many messages and the end. */
  void write(int messages) throws IOException {
    try (Sender sender = Protocols.sender(protocol, config(cookie))) {
      sender.meet(reader());
      Schedule schedule = new Schedule(System.nanoTime(), Long.MAX_VALUE);
      new Writer(config(cookie), new Counted(sender, messages, schedule), schedule, sent).run(SETTLE_NS);
    }
  }

  @Override
  public void close() {
    if (!closed.getAndSet(true)) {
      receiver.close();
    }
  }

  /** Has the time end with the last message. */
  private static final class Counted implements Sender {
    private final Sender sender;
    private final Schedule schedule;
    private int left;

    private Counted(Sender sender, int messages, Schedule schedule) {
      this.sender = sender;
      this.schedule = schedule;
      left = messages;
    }

    @Override
    public ByteBuffer message() {
      return sender.message();
    }

    @Override
    public void send() throws IOException {
      sender.send();
      left--;
      if (left == 0) {
        schedule.endNow();
      }
    }

    @Override
    public int endings() {
      return sender.endings();
    }

    @Override
    public void settle(long untilNs) throws IOException {
      sender.settle(untilNs);
    }

    @Override
    public int port() {
      return sender.port();
    }

    @Override
    public int meet(InetSocketAddress peer) throws IOException {
      return sender.meet(peer);
    }

    @Override
    public void wake() {
      sender.wake();
    }

    @Override
    public void close() {
      sender.close();
    }
  }
}
