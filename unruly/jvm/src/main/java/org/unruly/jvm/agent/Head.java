package org.unruly.jvm.agent;

import io.netty.buffer.ByteBuf;

/**
 * What a request and its reply begin with, without the run's cookie.
 *
 * @param flags {@link #HASH}, {@link #DISK} and {@link #BODY}
 * @param request its number, unique for its sender within the run
 * @param sender who asked
 * @param receiver who was asked
 */
record Head(int flags, long request, int sender, int receiver) {
  /** Flag: the receiver hashes the message. */
  static final int HASH = 1;

  /** Flag: the receiver writes the reply to disk and syncs it before it answers. */
  static final int DISK = 2;

  /** Flag: request and reply have a body. */
  static final int BODY = 4;

  /** The number of a request whose reply answers no ask: it makes us known to a new connection's server. */
  static final long GREETING = -1;

  private static final int FLAGS_AT = 3;
  private static final int REQUEST_AT = 8;
  private static final int SENDER_AT = 16;
  private static final int RECEIVER_AT = 18;

  /** The head of the message at the reader's index, which has been found to be one. */
  static Head of(ByteBuf message) {
    int at = message.readerIndex();
    return new Head(
        message.getUnsignedByte(at + FLAGS_AT),
        message.getLong(at + REQUEST_AT),
        message.getUnsignedShort(at + SENDER_AT),
        message.getUnsignedShort(at + RECEIVER_AT));
  }

  boolean asksFor(int flag) {
    return (flags & flag) != 0;
  }
}
