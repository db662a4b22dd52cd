package org.unruly.apps;

import java.nio.BufferUnderflowException;
import java.nio.ByteBuffer;

/**
 * A request of a member, as the bytes that a platform carries.
 *
 * @param member who asks: a session of a client
 * @param number counts the requests of the member from 1; 0 adds the member
 * @param operation the place of the operation in the application's list
 * @param done the writes of this member that were answered before this request
 * @param replyBytes the least bytes of the reply
 * @param trace the trace that it belongs to
 * @param arguments the arguments of the operation
 */
public record Request(
    long member, long number, int operation, Tally done, int replyBytes, Trace trace, long[] arguments) {
  /** The most arguments of an operation. */
  public static final int ARGUMENTS_MAX = 8;

  private static final int VERSION = 1;
  private static final int TRACE_AT = 4 + 4 * Long.BYTES + Integer.BYTES;
  private static final int HEAD_BYTES = TRACE_AT + 3 * Long.BYTES;

  /** Returns its bytes, at least {@code leastBytes} of them. */
  public byte[] bytes(int leastBytes) {
    int own = HEAD_BYTES + Long.BYTES * arguments.length;
    ByteBuffer out = ByteBuffer.allocate(Math.max(own, leastBytes));
    out.put((byte) VERSION).put((byte) operation).putShort((short) arguments.length);
    out.putLong(member).putLong(number).putLong(done.writes()).putLong(done.sum());
    out.putInt(replyBytes);
    out.putLong(trace.high()).putLong(trace.low()).putLong(trace.parent());
    for (long argument : arguments) {
      out.putLong(argument);
    }
    return out.array();
  }

  /** Returns the bytes of the same request with another trace. */
  public static byte[] of(byte[] request, Trace trace) {
    byte[] traced = request.clone();
    ByteBuffer out = ByteBuffer.wrap(traced, TRACE_AT, 3 * Long.BYTES);
    out.putLong(trace.high()).putLong(trace.low()).putLong(trace.parent());
    return traced;
  }

  /**
   * Reads a request.
   *
   * @throws IllegalArgumentException if the bytes are no request
   */
  public static Request read(byte[] bytes) {
    ByteBuffer in = ByteBuffer.wrap(bytes);
    try {
      int version = in.get();
      int operation = in.get();
      int count = in.getShort();
      if (version != VERSION || operation < 0 || count < 0 || count > ARGUMENTS_MAX) {
        throw new IllegalArgumentException("the bytes are no request of an application");
      }
      long member = in.getLong();
      long number = in.getLong();
      Tally done = new Tally(in.getLong(), in.getLong());
      int replyBytes = in.getInt();
      if (replyBytes < 0 || replyBytes > Reply.BYTES_MAX) {
        throw new IllegalArgumentException("a reply of " + replyBytes + " bytes was asked for");
      }
      Trace trace = new Trace(in.getLong(), in.getLong(), in.getLong());
      long[] arguments = new long[count];
      for (int place = 0; place < count; place++) {
        arguments[place] = in.getLong();
      }
      return new Request(member, number, operation, done, replyBytes, trace, arguments);
    } catch (BufferUnderflowException thrown) {
      throw new IllegalArgumentException("the bytes end within a request", thrown);
    }
  }
}
