package org.unruly.jvm.stream;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.concurrent.locks.LockSupport;
import org.unruly.jvm.stream.Endpoint.Sender;
import org.unruly.jvm.stream.StreamCounts.SentCounts;

/** Sends messages as fast as the protocol allows, from the start to the end. */
public final class Writer {
  /** Between two tellings of the end, where messages may be lost: a burst of losses is then over. */
  private static final long ENDING_NS = 5_000_000;

  private final StreamConfig config;
  private final Sender sender;
  private final Schedule schedule;
  private final SentCounts sent;

  /** A writer that counts what it sends. */
  public Writer(StreamConfig config, Sender sender, Schedule schedule, SentCounts sent) {
    this.config = config;
    this.sender = sender;
    this.schedule = schedule;
    this.sent = sent;
  }

  /**
   * Sends until the end, then reports it.
   *
   * @param settleNs how long the protocol may take to deliver the sent messages
   */
  public void run(long settleNs) throws IOException {
    ByteBuffer message = sender.message();
    Header.writeCommon(message, config.cookie(), config.messageBytes());
    schedule.awaitStart();
    long sequence = 0;
    int untilStamp = 0;
    // the clock is read for each message anyway, to see the end: a stamp costs nothing more
    long nowNs = System.nanoTime();
    while (nowNs < schedule.endNs()) {
      if (untilStamp == 0 && config.sample() > 0) {
        Header.write(message, Header.STAMPED, sequence, nowNs);
        untilStamp = config.sample();
      } else {
        Header.write(message, 0, sequence, 0);
      }
      untilStamp--;
      sender.send();
      sent.add();
      sequence++;
      nowNs = System.nanoTime();
    }
    for (int telling = 0; telling < sender.endings(); telling++) {
      if (telling > 0) {
        LockSupport.parkNanos(ENDING_NS);
      }
      Header.write(message, Header.END, sequence, 0);
      sender.send();
    }
    sender.settle(System.nanoTime() + settleNs);
  }

  /** When a stream begins and ends, by CLOCK_MONOTONIC, which {@link System#nanoTime} is on Linux. */
  public static final class Schedule {
    /** The last stretch before the start is waited for awake, since a sleeper wakes late. */
    private static final long AWAKE_NS = 200_000;

    private final long startNs;
    private volatile long endNs;

    /** From start to end, ns. */
    public Schedule(long startNs, long endNs) {
      this.startNs = startNs;
      this.endNs = endNs;
    }

    /** Waits for the start, or for the end where that is moved before it. */
    public void awaitStart() {
      long leftNs = startNs - System.nanoTime();
      while (leftNs > 0 && !isOver()) {
        if (leftNs > AWAKE_NS) {
          // in short steps, so that an end that is moved here is seen
          LockSupport.parkNanos(Math.min(leftNs - AWAKE_NS, 10_000_000));
        } else {
          Thread.onSpinWait();
        }
        leftNs = startNs - System.nanoTime();
      }
    }

    /** Whether the end has come. */
    public boolean isOver() {
      return System.nanoTime() >= endNs;
    }

    /** The end, ns. */
    public long endNs() {
      return endNs;
    }

    /** Has the stream end now. */
    public void endNow() {
      endNs = System.nanoTime();
    }
  }
}
