package org.unruly.jvm.stream;

import java.util.concurrent.locks.LockSupport;

/** When a stream begins and ends, by CLOCK_MONOTONIC, which {@link System#nanoTime} is on Linux. */
public final class Timetable {
  /** The last stretch before the start is waited for awake, since a sleeper wakes late. */
  private static final long AWAKE_NS = 200_000;

  private final long startNs;
  private volatile long endNs;

  /** From start to end, ns. */
  public Timetable(long startNs, long endNs) {
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
