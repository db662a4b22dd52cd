package org.unruly.jvm;

import java.io.IOException;
import java.util.List;
import java.util.Set;
import org.unruly.jvm.collector.Load;
import org.unruly.jvm.collector.Workload;
import org.unruly.jvm.foreign.ForeignRecord.Kind;
import org.unruly.jvm.foreign.Parent.Command;
import org.unruly.jvm.foreign.Parent;
import org.unruly.jvm.protocol.Protocols;
import org.unruly.jvm.stream.Accounting;
import org.unruly.jvm.stream.Endpoint.Receiver;
import org.unruly.jvm.stream.Endpoint.Sender;
import org.unruly.jvm.stream.Endpoint;
import org.unruly.jvm.stream.Intake;
import org.unruly.jvm.stream.StreamConfig;
import org.unruly.jvm.stream.StreamCounts.SentCounts;
import org.unruly.jvm.stream.StreamCounts;
import org.unruly.jvm.stream.Writer.Schedule;
import org.unruly.jvm.stream.Writer;
import org.unruly.jvm.watch.ProcessMonitor;

/** One side of a stream, from its first record to its last. */
public final class StreamRun {
  /** Keys of its options. */
  public static final Set<String> KEYS =
      Set.of(
          "role", "protocol", "listen", "message", "sample", "cookie", "readers", "joins", "socket", "driver", "compete", "live",
          "occupancy", "cores");

  /** Time for messages under way to arrive at the end, ns; a writer that is still held up then has no reader. */
  static final long SETTLE_NS = 10_000_000_000L;

  /** A reader waits longer than its writer, so that the writer reports its own failure first. */
  private static final long READER_NS = SETTLE_NS + 2_000_000_000L;

  private static final long WAKING_MS = 1000;

  private final StreamConfig config;
  private final String protocol;
  private final boolean writes;
  private final Workload workload;
  private final Parent parent;
  private final SentCounts sent = new SentCounts();
  private final Accounting accounting = new Accounting();

  private StreamRun(Options options, Parent parent) {
    config = StreamConfig.of(options);
    protocol = options.oneOf("protocol", Protocols.NAMES);
    writes = options.oneOf("role", List.of("writer", "reader")).equals("writer");
    workload = Workload.competing(options);
    this.parent = parent;
  }

  /** Runs a stream to its end. */
  public static void run(Options options, Parent parent) throws IOException, InterruptedException {
    new StreamRun(options, parent).run();
  }

  private void run() throws IOException, InterruptedException {
    Load load = workload == null ? null : Load.build(workload, false, parent);
    try (Endpoint end = writes ? Protocols.sender(protocol, config) : Protocols.receiver(protocol, config)) {
      StreamCounts counts = writes ? sent : accounting;
      ProcessMonitor watch = new ProcessMonitor(parent, counts, config.messageBytes(), load);
      Session.hello(parent, end.port());
      watch.start();
      try {
        Schedule schedule = awaitStart(end);
        if (schedule != null) {
          stream(end, schedule);
        }
      } finally {
        watch.close();
        long next = writes ? sent.messages() : accounting.next();
        parent.report(Kind.DRAINED, counts.messages(), next);
      }
    }
  }

  /** Null when it was stopped before. */
  private Schedule awaitStart(Endpoint end) throws IOException, InterruptedException {
    boolean met = false;
    while (true) {
      Command command = parent.next();
      if (command.kind() == Kind.PEER) {
        met = true;
        int members = meet(end, command);
        if (members > 0) {
          parent.report(Kind.PEERS, members);
        }
      } else if (command.kind() == Kind.START && writes && !met) {
        throw new Problem(protocol, "start came before a peer", "the reader's address first", "send kind 16, then kind 17");
      } else if (command.kind() == Kind.START) {
        return new Schedule(command.first(), command.second());
      } else if (command.kind() == Kind.STOP) {
        return null;
      } else if (command.kind() == Command.FINISHED) {
        // not the stream, which has not begun: its competition
        throwCause(command.cause());
      }
    }
  }

  private int meet(Endpoint end, Command command) {
    try {
      return end.meet(command.peer());
    } catch (IOException thrown) {
      String wrong = command.peer() + " cannot be reached: " + thrown.getMessage();
      throw new Problem(protocol, wrong, "a reader that listens there", "start the reader first", thrown);
    }
  }

  private void stream(Endpoint end, Schedule schedule) throws IOException, InterruptedException {
    Thread thread = new Thread(() -> parent.add(Command.finished(attempt(end, schedule))), "stream");
    // a reader that cannot be woken must not hold the process
    thread.setDaemon(true);
    thread.start();
    try {
      awaitEnd(schedule);
    } finally {
      // before it is closed no one may use it any more
      end.wake();
      thread.join(WAKING_MS);
    }
  }

  private void awaitEnd(Schedule schedule) throws InterruptedException {
    long graceNs = writes ? SETTLE_NS : READER_NS;
    boolean stopped = false;
    while (true) {
      Command command = parent.next(schedule.endNs() + graceNs);
      if (command == null && writes && !stopped) {
        String wrong = "message " + sent.messages() + " is held up " + graceNs / 1_000_000_000 + " s after the end";
        throw new Problem(protocol, wrong, "a reader that reads", "see the errors of the reader");
      } else if (command == null && !stopped) {
        String wrong = accounting.messages() + " messages came, and the end never came";
        throw new Problem(protocol, wrong, "a writer that reports its end", "see the errors of the writer");
      } else if (command == null) {
        return;
      } else if (command.kind() == Kind.STOP) {
        schedule.endNow();
        graceNs = Shutdown.STOP_NS;
        stopped = true;
      } else if (command.kind() == Command.FINISHED) {
        throwCause(command.cause());
        return;
      }
    }
  }

  private Throwable attempt(Endpoint end, Schedule schedule) {
    try {
      if (end instanceof Sender sender) {
        new Writer(config, sender, schedule, sent).run(SETTLE_NS / 2);
      } else if (end instanceof Receiver receiver) {
        receiver.receive(new Intake(config, accounting, parent.ring()));
      }
      return null;
    } catch (IOException | RuntimeException | Error thrown) {
      return thrown;
    }
  }

  private void throwCause(Throwable cause) {
    if (cause instanceof Problem problem) {
      throw problem;
    } else if (cause != null) {
      long messages = writes ? sent.messages() : accounting.messages();
      // an error of a peer or a socket has a clear message; for any other the kind says most
      boolean spoken = cause instanceof IOException && cause.getMessage() != null;
      String wrong = "the stream broke after " + messages + " messages: " + (spoken ? cause.getMessage() : cause);
      throw new Problem(protocol, wrong, "a peer until the end", "see the errors of the other side", cause);
    }
  }
}
