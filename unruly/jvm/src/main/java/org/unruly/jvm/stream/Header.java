package org.unruly.jvm.stream;

import java.nio.ByteBuffer;

/**
 * The head of each message of a stream, as {@code unruly/schema/foreign.md} has it: 32 bytes, big-endian.
 *
 * <p>Static, on absolute offsets: nothing is made for a message.
 */
public final class Header {
  /** Bytes of the head, the least size of a message. */
  public static final int BYTES = 32;

  /** Flag: the message has a stamp. */
  public static final int STAMPED = 1;

  /** Flag: the stream is over; the sequence is the number of messages sent. */
  public static final int END = 2;

  private static final int MAGIC = 0x756E7273;
  private static final int COOKIE_AT = 4;
  private static final int FLAGS_AT = 8;
  private static final int LENGTH_AT = 12;
  private static final int SEQUENCE_AT = 16;
  private static final int STAMP_AT = 24;

  private Header() {}

  /** Writes what all messages of a stream have in common. */
  public static void writeCommon(ByteBuffer buffer, int cookie, int lengthBytes) {
    buffer.putInt(0, MAGIC).putInt(COOKIE_AT, cookie).putInt(LENGTH_AT, lengthBytes);
  }

  /** Writes what differs from message to message. The stamp is 0 unless the flags say stamped. */
  public static void write(ByteBuffer buffer, int flags, long sequence, long stampNs) {
    buffer.putInt(FLAGS_AT, flags).putLong(SEQUENCE_AT, sequence).putLong(STAMP_AT, stampNs);
  }

  /** Whether a message at an offset belongs to this stream. */
  public static boolean isOurs(ByteBuffer buffer, int at, int cookie, int lengthBytes) {
    return buffer.getInt(at) == MAGIC
        && buffer.getInt(at + COOKIE_AT) == cookie
        && buffer.getInt(at + LENGTH_AT) == lengthBytes
        && buffer.getLong(at + SEQUENCE_AT) >= 0;
  }

  /** The flags of the message at an offset. */
  public static int flags(ByteBuffer buffer, int at) {
    return buffer.getInt(at + FLAGS_AT);
  }

  /** The sequence of the message at an offset. */
  public static long sequence(ByteBuffer buffer, int at) {
    return buffer.getLong(at + SEQUENCE_AT);
  }

  /** The stamp of the message at an offset, CLOCK_MONOTONIC of the writer. */
  public static long stampNs(ByteBuffer buffer, int at) {
    return buffer.getLong(at + STAMP_AT);
  }
}
