package org.unruly.jvm.collector;

import java.util.concurrent.locks.LockSupport;
import org.unruly.jvm.stream.Counter;

/** Drops and adds elements of a structure of its own, evenly, at a rate that may change. */
final class Worker implements Runnable {
  private static final long TICK_NS = 1_000_000;

  /**
   * What a pause of the world has kept from being done is made up for after it, or with a collector that pauses half of the
   * time the rate would be half of what was set; but of a stop longer than this, which is none of a collector's, no more.
   */
  private static final long TICK_NS_MAX = 1000 * TICK_NS;

  /** After so many the clock is looked at, and whether to end. */
  private static final long BATCH = 10_000;

  private final Structure structure;
  private final Counter replaced = new Counter();
  private volatile double rateHz;
  private volatile boolean closing;

  Worker(Structure structure) {
    this.structure = structure;
  }

  void setRate(double elementsHz) {
    rateHz = elementsHz;
  }

  long replaced() {
    return replaced.get();
  }

  void close() {
    closing = true;
  }

  @Override
  public void run() {
    double owed = 0;
    long beforeNs = System.nanoTime();
    while (!closing) {
      long nowNs = System.nanoTime();
      owed += Math.min(nowNs - beforeNs, TICK_NS_MAX) * rateHz / 1e9;
      beforeNs = nowNs;
      long now = Math.min((long) owed, BATCH);
      for (long one = 0; one < now; one++) {
        structure.replaceOne();
      }
      owed -= now;
      replaced.add(now);
      long leftNs = nowNs + TICK_NS - System.nanoTime();
      if (leftNs > 0) {
        LockSupport.parkNanos(leftNs);
      }
    }
  }
}
