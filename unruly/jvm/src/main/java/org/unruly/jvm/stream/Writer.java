package org.unruly.jvm.stream;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.concurrent.locks.LockSupport;

/** Sends messages as fast as the protocol allows, from the start to the end. */
public final class Writer {
  /** Between two tellings of the end, where messages may be lost: a burst of losses is then over. */
  private static final long ENDING_NS = 5_000_000;

  private final Terms terms;
  private final Outlet outlet;
  private final Timetable timetable;
  private final Sent sent;

  /** A writer that counts what it sends. */
  public Writer(Terms terms, Outlet outlet, Timetable timetable, Sent sent) {
    this.terms = terms;
    this.outlet = outlet;
    this.timetable = timetable;
    this.sent = sent;
  }

  /**
   * Sends until the end, then tells it.
   *
   * @param settleNs how long the protocol may take to bring what was sent
   */
  public void run(long settleNs) throws IOException {
    ByteBuffer message = outlet.message();
    Header.writeCommon(message, terms.cookie(), terms.messageBytes());
    timetable.awaitStart();
    long sequence = 0;
    int untilStamp = 0;
    // the clock is read for each message anyway, to see the end: a stamp costs nothing more
    long nowNs = System.nanoTime();
    while (nowNs < timetable.endNs()) {
      if (untilStamp == 0 && terms.sample() > 0) {
        Header.write(message, Header.STAMPED, sequence, nowNs);
        untilStamp = terms.sample();
      } else {
        Header.write(message, 0, sequence, 0);
      }
      untilStamp--;
      outlet.send();
      sent.add();
      sequence++;
      nowNs = System.nanoTime();
    }
    for (int telling = 0; telling < outlet.endings(); telling++) {
      if (telling > 0) {
        LockSupport.parkNanos(ENDING_NS);
      }
      Header.write(message, Header.END, sequence, 0);
      outlet.send();
    }
    outlet.settle(System.nanoTime() + settleNs);
  }
}
