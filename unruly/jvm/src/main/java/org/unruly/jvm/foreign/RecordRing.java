package org.unruly.jvm.foreign;

import java.nio.ByteBuffer;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicLongArray;

/**
 * Records on their way to the agent: bounded, and without locks.
 *
 * <p>The threads that are measured put records in and never wait: when there is no room, the record is dropped and
 * counted. One thread takes them out. Each slot has a turn that says whose it is (Vyukov's bounded queue): equal to the
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

  /** A ring with room for so many records: a power of two, at least 2, since of one slot a turn could not say whose it is. */
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
   * Puts a record in; from any thread.
   *
   * @return false when there was no room: it is dropped and counted
   */
  public boolean offer(int kind, long[] fields, int count) {
    boolean taken = tryOffer(kind, fields, count);
    if (!taken) {
      dropped.incrementAndGet();
    }
    return taken;
  }

  /** The same for who tries again: what finds no room is not counted. */
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
   * Takes records out, encoded, as many as the buffer has room for; from one thread only.
   *
   * @return how many
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

  /** How many records found no room since this was last asked. */
  public long takeDropped() {
    return dropped.getAndSet(0);
  }
}
