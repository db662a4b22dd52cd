package org.unruly.jvm.stream;

import java.nio.ByteBuffer;
import org.unruly.jvm.foreign.Kind;
import org.unruly.jvm.foreign.RecordRing;

/** What a reader does with each message, whatever protocol brought it. One thread at a time. */
public final class Intake {
  private static final int SAMPLE_FIELDS = 4;

  private final Terms terms;
  private final Accounting accounting;
  private final RecordRing ring;
  private final long[] sample = new long[SAMPLE_FIELDS];
  private volatile boolean over;

  /** An intake that counts here and tells its samples there. */
  public Intake(Terms terms, Accounting accounting, RecordRing ring) {
    this.terms = terms;
    this.accounting = accounting;
    this.ring = ring;
  }

  /** Size of each message. */
  public int messageBytes() {
    return terms.messageBytes();
  }

  /** Whether the writer has told the end. */
  public boolean isOver() {
    return over;
  }

  /**
   * Takes a message.
   *
   * @param buffer with at least the head of the message
   * @param at where the message begins
   * @param lengthBytes of the message as it came
   * @return whether it was one of this stream
   */
  public boolean take(ByteBuffer buffer, int at, int lengthBytes) {
    if (lengthBytes != terms.messageBytes() || !Header.isOurs(buffer, at, terms.cookie(), lengthBytes)) {
      return false;
    }
    if (over) {
      return true;
    }
    int flags = Header.flags(buffer, at);
    long sequence = Header.sequence(buffer, at);
    if ((flags & Header.END) != 0) {
      accounting.end(sequence);
      over = true;
      return true;
    }
    accounting.accept(sequence);
    if ((flags & Header.STAMPED) != 0) {
      sample[0] = sequence;
      sample[1] = Header.stampNs(buffer, at);
      sample[2] = System.nanoTime();
      sample[3] = lengthBytes;
      ring.offer(Kind.SAMPLE, sample, SAMPLE_FIELDS);
    }
    return true;
  }
}
