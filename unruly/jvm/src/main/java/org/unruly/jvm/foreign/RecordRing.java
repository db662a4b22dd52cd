package org.unruly.jvm.foreign;

import java.nio.ByteBuffer;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicLongArray;

/**
 * A bounded lock-free queue of records for the agent.
 *
 * <p>Measured threads add records and never wait. If the ring is full, it drops and counts the record.
 * One thread removes them. Each slot has a turn that gives its owner (Vyukov's bounded queue): equal to the
 * position, the producer's of that position; one more, the consumer's.
 */
public final class RecordRing {
  private static final int STRIDE = ForeignRecord.FIELDS + 2;

  private final long[] cells;
  private final AtomicLongArray turns;
  private final int mask;
  private final AtomicLong tail = new AtomicLong();
  private final AtomicLong dropped = new AtomicLong();
  private long head;

  /** Creates a ring of {@code capacity} records: a power of two, at least 2 (a turn needs two slots to be unambiguous). */
  public RecordRing(int capacity) {
    if (capacity < 2 || Integer.bitCount(capacity) != 1) {
      throw new IllegalArgumentException("capacity " + capacity + " is no power of two from 2 on");
    }
    cells = new long[capacity * STRIDE];
    turns = new AtomicLongArray(capacity);
    mask = capacity - 1;
    for (int slot = 0; slot < capacity; slot++) {
      turns.setPlain(slot, slot);
    }
  }

  /**
   * Adds a record, from any thread.
   *
   * @return false if the ring is full: the record is dropped and counted
   */
  public boolean offer(int kind, long[] fields, int count) {
    boolean taken = tryOffer(kind, fields, count);
    if (!taken) {
      dropped.incrementAndGet();
    }
    return taken;
  }

  /** Adds a record, for callers that retry. A full ring returns false and counts nothing. */
  public boolean tryOffer(int kind, long[] fields, int count) {
    while (true) {
      long position = tail.get();
      int slot = (int) position & mask;
      long turn = turns.getAcquire(slot);
      if (turn < position) {
        return false;
      }
      if (turn == position && tail.compareAndSet(position, position + 1)) {
        int at = slot * STRIDE;
        cells[at] = kind;
        cells[at + 1] = count;
        System.arraycopy(fields, 0, cells, at + 2, count);
        turns.setRelease(slot, position + 1);
        return true;
      }
    }
  }

  /**
   * Removes and encodes as many records as fit into the buffer. Only one thread may call it.
   *
   * @return number of records removed
   */
  public int drain(ByteBuffer into) {
    int taken = 0;
    while (into.remaining() >= ForeignRecord.BYTES) {
      int slot = (int) head & mask;
      if (turns.getAcquire(slot) != head + 1) {
        break;
      }
      int at = slot * STRIDE;
      ForeignRecord.write(into, (int) cells[at], cells, at + 2, (int) cells[at + 1]);
      turns.setRelease(slot, head + mask + 1);
      head++;
      taken++;
    }
    return taken;
  }

  /** Returns the number of records dropped since the last call. */
  public long takeDropped() {
    return dropped.getAndSet(0);
  }
}
