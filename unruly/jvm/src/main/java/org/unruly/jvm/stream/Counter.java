package org.unruly.jvm.stream;

import java.util.concurrent.atomic.AtomicLong;

/** A number that one thread counts and others may read, without the cost of a fence. */
public final class Counter {
  private final AtomicLong value = new AtomicLong();

  /** Adds; only from the thread that counts, or from one that follows it. */
  public void add(long more) {
    value.setRelease(value.getPlain() + more);
  }

  /** The number, from any thread. */
  public long get() {
    return value.getAcquire();
  }
}
