package org.unruly.jvm.stream;

import java.util.concurrent.atomic.AtomicLong;
import org.unruly.jvm.foreign.ForeignRecord;

/** The counts of a stream so far, for its rows; read from any thread. */
public interface StreamCounts {
  /** Messages sent or received. */
  long messages();

  /** Messages that did not arrive, or {@code Long.MIN_VALUE} where this is not known. */
  long lost();

  /** Messages that came again, or {@code Long.MIN_VALUE}. */
  long duplicated();

  /** Messages that came after a later one, or {@code Long.MIN_VALUE}. */
  long reordered();

  /** Messages that may yet come, or {@code Long.MIN_VALUE}. */
  long inFlight();

  /** A number that one thread counts and others may read, without the cost of a fence. */
  public static final class Counter {
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

  /** What a writer has sent; what became of it only the reader knows. */
  public static final class SentCounts implements StreamCounts {
    private final Counter messages = new Counter();

    void add() {
      messages.add(1);
    }

    @Override
    public long messages() {
      return messages.get();
    }

    @Override
    public long lost() {
      return ForeignRecord.ABSENT;
    }

    @Override
    public long duplicated() {
      return ForeignRecord.ABSENT;
    }

    @Override
    public long reordered() {
      return ForeignRecord.ABSENT;
    }

    @Override
    public long inFlight() {
      return ForeignRecord.ABSENT;
    }
  }
}
