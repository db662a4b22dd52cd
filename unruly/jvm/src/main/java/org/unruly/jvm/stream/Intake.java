package org.unruly.jvm.stream;

import java.nio.ByteBuffer;
import org.unruly.jvm.foreign.ForeignRecord.Kind;
import org.unruly.jvm.foreign.RecordRing;

/** What a reader does with each message, whatever protocol brought it. One thread at a time. */
public final class Intake {
  private static final int SAMPLE_FIELDS = 4;

  private final StreamConfig config;
  private final Accounting accounting;
  private final RecordRing ring;
  private final long[] sample = new long[SAMPLE_FIELDS];
  private volatile boolean over;

  /** Creates an intake that counts in {@code accounting} and puts its samples into {@code ring}. */
  public Intake(StreamConfig config, Accounting accounting, RecordRing ring) {
    this.config = config;
    this.accounting = accounting;
    this.ring = ring;
  }

  /** Size of each message. */
  public int messageBytes() {
    return config.messageBytes();
  }

  /** Returns true if the writer has reported the end. */
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
    if (lengthBytes != config.messageBytes() || !Header.isOurs(buffer, at, config.cookie(), lengthBytes)) {
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

  /** Cuts a stream of bytes into messages of the one size that all have. */
  public static final class Frames {
    private final Intake intake;
    private boolean begun;

    /** Frames of a connection, for an intake. */
    public Frames(Intake intake) {
      this.intake = intake;
    }

    /**
     * Takes the whole messages between position 0 and the buffer's position, and keeps the rest for the next read.
     *
     * @return false when the connection's first message is none of this stream: someone else has connected
     */
    public boolean take(ByteBuffer buffer) {
      int messageBytes = intake.messageBytes();
      buffer.flip();
      int at = 0;
      while (buffer.limit() - at >= messageBytes && !intake.isOver()) {
        boolean ours = intake.take(buffer, at, messageBytes);
        if (!begun && !ours) {
          return false;
        }
        begun = true;
        at += messageBytes;
      }
      buffer.position(at);
      buffer.compact();
      return true;
    }

    /** Whether a message of this stream has come. */
    public boolean begun() {
      return begun;
    }

    /** Room for reads: many messages at once, and always a whole one. */
    public static int roomBytes(int messageBytes) {
      return Math.max(256 << 10, 2 * messageBytes);
    }
  }
}
