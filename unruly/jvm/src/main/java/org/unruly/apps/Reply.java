package org.unruly.apps;

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;

/**
 * The reply to a request.
 *
 * @param number the number of the request
 * @param status whether it was done
 * @param words the reply of the operation, or the reason of the failure
 */
public record Reply(long number, Status status, String words) {
  /** The most bytes of a reply, padding included. */
  public static final int BYTES_MAX = 1 << 20;

  private static final int HEAD_BYTES = 1 + Long.BYTES + Integer.BYTES;

  /** The fate of a request. */
  public enum Status {
    /** It was done, or refused by the rules of the application. */
    DONE,
    /** The database failed. It may be sent again, and is done once even if it was done. */
    FAILED,
    /** It was not done, and never will be: the request is wrong. */
    REFUSED,
    /** An earlier request of the member was lost, or done twice. */
    WRONG
  }

  /** Returns its bytes, at least {@code leastBytes} of them. */
  public byte[] bytes(int leastBytes) {
    byte[] text = words.getBytes(StandardCharsets.UTF_8);
    ByteBuffer out = ByteBuffer.allocate(Math.max(HEAD_BYTES + text.length, leastBytes));
    out.put((byte) status.ordinal()).putLong(number).putInt(text.length).put(text);
    return out.array();
  }

  /** Returns true if these bytes say that the request may be sent again. */
  public static boolean isFailed(byte[] bytes) {
    return bytes.length > 0 && bytes[0] == Status.FAILED.ordinal();
  }

  /**
   * Reads a reply.
   *
   * @throws IllegalArgumentException if the bytes are no reply
   */
  public static Reply read(byte[] bytes) {
    ByteBuffer in = ByteBuffer.wrap(bytes);
    if (bytes.length < HEAD_BYTES) {
      throw new IllegalArgumentException("a reply has " + bytes.length + " bytes");
    }
    int status = in.get();
    long number = in.getLong();
    int length = in.getInt();
    if (status < 0 || status >= Status.values().length || length < 0 || length > in.remaining()) {
      throw new IllegalArgumentException("the bytes are no reply of an application");
    }
    return new Reply(
        number,
        Status.values()[status], new String(bytes, HEAD_BYTES, length, StandardCharsets.UTF_8));
  }
}
