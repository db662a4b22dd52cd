package org.unruly.jvm.foreign;

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.zip.CRC32;
import org.unruly.jvm.Problem;

/**
 * A record between an agent and a process of another language, as {@code unruly/schema/foreign.md} has it: 96 bytes, big-endian.
 *
 * @param kind one of {@link Kind}
 * @param fields ten fields; an absent one is {@link #ABSENT}
 */
public record ForeignRecord(int kind, long[] fields) {
  /** Bytes of a record. */
  public static final int BYTES = 96;

  /** Fields of a record. */
  public static final int FIELDS = 10;

  /** Value of an absent field. */
  public static final long ABSENT = Long.MIN_VALUE;

  /** Version of the protocol. */
  public static final int VERSION = 1;

  /** Capacity of one record for text, bytes. */
  public static final int TEXT_BYTES = FIELDS * Long.BYTES;

  /** Largest number of records for one text. */
  static final int TEXTS_MAX = 10;

  private static final int MAGIC = 0x554E524A;
  private static final int FIELDS_AT = 8;
  private static final int CRC_AT = 88;

  /** Writes a record at the buffer's position, which moves behind it. Fields beyond the given ones are absent. */
  public static void write(ByteBuffer into, int kind, long[] fields, int first, int count) {
    int at = into.position();
    into.putInt(MAGIC).putShort((short) VERSION).putShort((short) kind);
    for (int field = 0; field < FIELDS; field++) {
      into.putLong(field < count ? fields[first + field] : ABSENT);
    }
    into.putInt(checksum(into, at)).putInt(0);
  }

  /** Reads a record at the buffer's position, which moves behind it. */
  public static ForeignRecord read(ByteBuffer from) {
    int at = from.position();
    int magic = from.getInt(at);
    int version = from.getShort(at + 4);
    if (magic != MAGIC || version != VERSION) {
      String wrong = String.format("magic 0x%08x, version %d", magic, version);
      throw new Problem("agent", wrong, "a foreign record of version " + VERSION, "update the agent and the jar together");
    }
    if (from.getInt(at + CRC_AT) != checksum(from, at)) {
      String wrong = String.format("checksum 0x%08x", from.getInt(at + CRC_AT));
      throw new Problem("agent", wrong, String.format("0x%08x", checksum(from, at)), "the bytes of the socket were changed");
    }
    long[] fields = new long[FIELDS];
    for (int field = 0; field < FIELDS; field++) {
      fields[field] = from.getLong(at + FIELDS_AT + field * Long.BYTES);
    }
    from.position(at + BYTES);
    return new ForeignRecord(from.getShort(at + 6), fields);
  }

  /** Returns the fields of the records that carry a text, cut after {@link #TEXTS_MAX} records. No character is split. */
  public static List<long[]> texts(String text) {
    byte[] whole = text.getBytes(StandardCharsets.UTF_8);
    List<long[]> parts = new ArrayList<>();
    int at = 0;
    do {
      int end = Math.min(whole.length, at + TEXT_BYTES);
      while (end < whole.length && (whole[end] & 0xC0) == 0x80) {
        end--;
      }
      long[] fields = new long[FIELDS];
      ByteBuffer.wrap(Arrays.copyOf(Arrays.copyOfRange(whole, at, end), TEXT_BYTES)).asLongBuffer().get(fields);
      parts.add(fields);
      at = end;
    } while (at < whole.length && parts.size() < TEXTS_MAX);
    return parts;
  }

  private static int checksum(ByteBuffer buffer, int at) {
    CRC32 crc = new CRC32();
    crc.update(buffer.duplicate().limit(at + CRC_AT).position(at));
    return (int) crc.getValue();
  }

  /** Kinds of foreign records; their fields are in {@code unruly/schema/foreign.md}. */
  public static final class Kind {
    /** To the agent: process id, bound port, protocol version. */
    public static final int HELLO = 1;

    /** To the agent: counts and resource use of this process in an interval. */
    public static final int INTERVAL = 2;

    /** To the agent: the stamps of one message. */
    public static final int SAMPLE = 3;

    /** To the agent: cumulative work of the garbage collector. */
    public static final int COLLECTOR = 4;

    /** To the agent: the stream is over, and accounted for. */
    public static final int DRAINED = 5;

    /** To the agent: the run succeeded and every record was sent. */
    public static final int DONE = 6;

    /** To the agent: number of records dropped because the ring was full. */
    public static final int DROPPED = 7;

    /** To the agent: last part of the error message. */
    public static final int FAILURE = 8;

    /** To the agent: number of group members. */
    public static final int PEERS = 9;

    /** To the agent: earlier part of an error message that needs several records. */
    public static final int WORDS = 10;

    /** From the agent: address of the peer. */
    public static final int PEER = 16;

    /** From the agent: start time and end time of the stream. */
    public static final int START = 17;

    /** From the agent: stop now. */
    public static final int STOP = 18;

    /** From the agent, on a request connection: the peer. */
    public static final int ROUTE = 32;

    /** From the agent, on a request connection: a request and its scheduled time. */
    public static final int ASK = 33;

    /** To the agent, on a request connection: send time of a request. */
    public static final int SENT = 34;

    /** To the agent, on a request connection: time stamps of a reply. */
    public static final int REPLY = 35;

    /** To the agent, on a request connection: a request failed. */
    public static final int FAILED = 36;

    /** To the agent: number of connections and datagrams that the server refused. */
    public static final int REFUSED = 38;

    private Kind() {}
  }
}
