package org.unruly.jvm.stream;

import java.util.Arrays;
import org.unruly.jvm.stream.StreamCounts.Counter;

/**
 * Which messages of a stream have come, over a window of sequences.
 *
 * <p>A message that leaves the window without having come is lost; one that comes while it is in the window, after a
 * later one, is reordered; one whose sequence was counted before, as come or as lost, is duplicated. At any time {@code
 * highest + 1 == messages - duplicated + lost + in flight}.
 */
public final class Accounting implements StreamCounts {
  /** Sequences of the window. */
  public static final int WINDOW = 65_536;

  private static final int MASK = WINDOW - 1;

  /**
   * A bit for each sequence number, set if it has arrived. All are set at first: numbers before the first message are
   * not lost.
   */
  private final long[] come = new long[WINDOW / Long.SIZE];

  private final Counter messages = new Counter();
  private final Counter lost = new Counter();
  private final Counter duplicated = new Counter();
  private final Counter reordered = new Counter();
  private final Counter missing = new Counter();
  private final Counter next = new Counter();

  /** Nothing has come yet. */
  public Accounting() {
    Arrays.fill(come, -1L);
  }

  /** A message has come. */
  public void accept(long sequence) {
    messages.add(1);
    long expected = next.get();
    if (sequence >= expected) {
      if (sequence > expected) {
        skipTo(sequence);
      }
      leave(sequence);
      set(sequence);
      next.add(sequence + 1 - next.get());
    } else if (sequence < expected - WINDOW || isSet(sequence)) {
      duplicated.add(1);
    } else {
      set(sequence);
      missing.add(-1);
      reordered.add(1);
    }
  }

  /** Ends the stream: sent messages that have not arrived are lost. */
  public void end(long sent) {
    if (sent > next.get()) {
      skipTo(sent);
    }
    lost.add(missing.get());
    missing.add(-missing.get());
    Arrays.fill(come, -1L);
  }

  @Override
  public long messages() {
    return messages.get();
  }

  @Override
  public long lost() {
    return lost.get();
  }

  @Override
  public long duplicated() {
    return duplicated.get();
  }

  @Override
  public long reordered() {
    return reordered.get();
  }

  @Override
  public long inFlight() {
    return missing.get();
  }

  /** The highest sequence + 1. */
  public long next() {
    return next.get();
  }

  private void skipTo(long sequence) {
    long expected = next.get();
    long beyond = sequence - expected - WINDOW;
    if (beyond > 0) {
      // the window is passed over whole: all that it held open is lost, and what never was in it
      lost.add(missing.get() + beyond);
      missing.add(WINDOW - missing.get());
      Arrays.fill(come, 0L);
    } else {
      for (long skipped = expected; skipped < sequence; skipped++) {
        leave(skipped);
        missing.add(1);
      }
    }
    next.add(sequence - expected);
  }

  /** The sequence that had this one's place leaves the window; the place is then free. */
  private void leave(long sequence) {
    if (!isSet(sequence)) {
      missing.add(-1);
      lost.add(1);
    }
    come[(int) sequence >>> 6 & MASK >>> 6] &= ~(1L << sequence);
  }

  private boolean isSet(long sequence) {
    return (come[(int) sequence >>> 6 & MASK >>> 6] & 1L << sequence) != 0;
  }

  private void set(long sequence) {
    come[(int) sequence >>> 6 & MASK >>> 6] |= 1L << sequence;
  }
}
