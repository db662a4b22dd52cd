package org.unruly.jvm.protocol;

import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.atomic.AtomicBoolean;
import org.unruly.jvm.foreign.RecordRing;
import org.unruly.jvm.stream.Accounting;
import org.unruly.jvm.stream.Inlet;
import org.unruly.jvm.stream.Intake;
import org.unruly.jvm.stream.Outlet;
import org.unruly.jvm.stream.Sent;
import org.unruly.jvm.stream.Terms;
import org.unruly.jvm.stream.Timetable;
import org.unruly.jvm.stream.Writer;

/** Both ends of a stream in this process, over loopback, with ports that the kernel chooses. */
final class Streaming implements AutoCloseable {
  static final int MESSAGE_BYTES = 2000;
  static final long SETTLE_NS = 5_000_000_000L;

  final Accounting accounting = new Accounting();
  final Sent sent = new Sent();
  final RecordRing ring = new RecordRing(8192);
  final Inlet inlet;
  private final String protocol;
  private final int cookie;
  private final AtomicBoolean closed = new AtomicBoolean();

  Streaming(String protocol, int cookie) {
    this.protocol = protocol;
    this.cookie = cookie;
    inlet = Protocols.inlet(protocol, terms(cookie));
  }

  static Terms terms(int cookie) {
    return terms(cookie, 0, MESSAGE_BYTES);
  }

  static Terms terms(int cookie, int port, int messageBytes) {
    return new Terms(new InetSocketAddress(InetAddress.getLoopbackAddress(), port), messageBytes, 100, cookie, 1, false, null);
  }

  InetSocketAddress reader() {
    return new InetSocketAddress(InetAddress.getLoopbackAddress(), inlet.port());
  }

  /** Starts the reader; done when it has ended. */
  CompletableFuture<Void> receive() {
    CompletableFuture<Void> done = new CompletableFuture<>();
    Thread thread =
        new Thread(
            () -> {
              try {
                inlet.receive(new Intake(terms(cookie), accounting, ring));
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

  /** Writes so many messages and the end. */
  void write(int messages) throws IOException {
    try (Outlet outlet = Protocols.outlet(protocol, terms(cookie))) {
      outlet.meet(reader());
      Timetable timetable = new Timetable(System.nanoTime(), Long.MAX_VALUE);
      new Writer(terms(cookie), new Counted(outlet, messages, timetable), timetable, sent).run(SETTLE_NS);
    }
  }

  @Override
  public void close() {
    if (!closed.getAndSet(true)) {
      inlet.close();
    }
  }

  /** Has the time end with the last message. */
  private static final class Counted implements Outlet {
    private final Outlet outlet;
    private final Timetable timetable;
    private int left;

    private Counted(Outlet outlet, int messages, Timetable timetable) {
      this.outlet = outlet;
      this.timetable = timetable;
      left = messages;
    }

    @Override
    public ByteBuffer message() {
      return outlet.message();
    }

    @Override
    public void send() throws IOException {
      outlet.send();
      left--;
      if (left == 0) {
        timetable.endNow();
      }
    }

    @Override
    public int endings() {
      return outlet.endings();
    }

    @Override
    public void settle(long untilNs) throws IOException {
      outlet.settle(untilNs);
    }

    @Override
    public int port() {
      return outlet.port();
    }

    @Override
    public int meet(InetSocketAddress peer) throws IOException {
      return outlet.meet(peer);
    }

    @Override
    public void wake() {
      outlet.wake();
    }

    @Override
    public void close() {
      outlet.close();
    }
  }
}
