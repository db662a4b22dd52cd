package org.unruly.jvm.agent;

import io.netty.buffer.ByteBuf;
import java.net.ProtocolException;
import java.util.zip.CRC32;

/**
 * The group RPC on the wire, as {@code unruly/schema/wire.md} defines it. Without I/O.
 *
 * @param cookie of the run: a message with another one is refused
 * @param bodyBytes length of every body of the run
 */
record Codec(int cookie, int bodyBytes) {
  /** Length of a request without its body. */
  static final int REQUEST_BYTES = 28;

  /** Length of a reply without its body. */
  static final int REPLY_BYTES = 44;

  /** {@code U}, version 1. */
  private static final int MAGIC = 0x5501;

  private static final int REQUEST = 1;
  private static final int REPLY = 2;

  /** The number of bytes that identify the run of a message. */
  private static final int HEAD_BYTES = 20;

  private static final int COOKIE_AT = 4;
  private static final int LENGTH_AT = 20;
  private static final int CRC_AT = 24;

  /** Length of a request with these flags, its body included. */
  int requestBytes(int flags) {
    return REQUEST_BYTES + bodyBytesOf(flags);
  }

  /** Length of a reply with these flags, its body included. */
  int replyBytes(int flags) {
    return REPLY_BYTES + bodyBytesOf(flags);
  }

  /** Appends a request with its body. */
  void writeRequest(ByteBuf into, Head head) {
    int at = into.writerIndex();
    writeHead(into, REQUEST, head);
    into.writeInt(bodyBytesOf(head.flags()));
    into.writeInt(checksum(into, at));
    into.writeZero(bodyBytesOf(head.flags()));
  }

  /** Appends a reply with its body. */
  void writeReply(ByteBuf into, Head head, Stamps stamps) {
    writeHead(into, REPLY, head);
    into.writeLong(stamps.kernelReceivedNs()).writeLong(stamps.receivedNs()).writeLong(stamps.sentNs());
    into.writeZero(bodyBytesOf(head.flags()));
  }

  /**
   * Length of the request at the reader's index, or 0 when more bytes are needed.
   *
   * @throws ProtocolException when it is no request of this run: found from the first bytes on, so that a garbage
   *     length is never waited for
   */
  int requestBytes(ByteBuf from) throws ProtocolException {
    if (!hasHead(from, REQUEST) || from.readableBytes() < REQUEST_BYTES) {
      return 0;
    }
    int at = from.readerIndex();
    if (from.getInt(at + CRC_AT) != checksum(from, at)) {
      throw new ProtocolException("a checksum that is not of its request");
    }
    int bytes = requestBytes(Head.of(from).flags());
    if (from.getUnsignedInt(at + LENGTH_AT) != bytes - REQUEST_BYTES) {
      throw new ProtocolException("a body of " + from.getUnsignedInt(at + LENGTH_AT) + " bytes");
    }
    return from.readableBytes() < bytes ? 0 : bytes;
  }

  /**
   * Length of the reply at the reader's index, or 0 when more bytes are needed.
   *
   * @throws ProtocolException when it is no reply of this run
   */
  int replyBytes(ByteBuf from) throws ProtocolException {
    if (!hasHead(from, REPLY)) {
      return 0;
    }
    int bytes = replyBytes(Head.of(from).flags());
    return from.readableBytes() < bytes ? 0 : bytes;
  }

  private int bodyBytesOf(int flags) {
    return (flags & Head.BODY) == 0 ? 0 : bodyBytes;
  }

  private void writeHead(ByteBuf into, int kind, Head head) {
    into.writeShort(MAGIC).writeByte(kind).writeByte(head.flags()).writeInt(cookie);
    into.writeLong(head.request()).writeShort(head.sender()).writeShort(head.receiver());
  }

  private boolean hasHead(ByteBuf from, int kind) throws ProtocolException {
    int at = from.readerIndex();
    if (from.readableBytes() >= Short.BYTES && from.getUnsignedShort(at) != MAGIC) {
      throw new ProtocolException(String.format("magic 0x%04x", from.getUnsignedShort(at)));
    }
    if (from.readableBytes() < HEAD_BYTES) {
      return false;
    }
    if (from.getByte(at + 2) != kind) {
      throw new ProtocolException("kind " + from.getUnsignedByte(at + 2));
    }
    if (from.getInt(at + COOKIE_AT) != cookie) {
      throw new ProtocolException("the cookie of another run");
    }
    return true;
  }

  private static int checksum(ByteBuf buffer, int at) {
    CRC32 crc = new CRC32();
    crc.update(buffer.nioBuffer(at, CRC_AT));
    return (int) crc.getValue();
  }

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

  /**
   * When a server handled a request: ns of its wall clock, 0 = missing.
   *
   * @param kernelReceivedNs the kernel received the request
   * @param receivedNs the handler had the whole request
   * @param sentNs the reply was handed to the kernel
   */
  record Stamps(long kernelReceivedNs, long receivedNs, long sentNs) {
    private static final int KERNEL_RECEIVED_AT = 20;
    private static final int RECEIVED_AT = 28;
    private static final int SENT_AT = 36;

    /** The stamps of the reply at the reader's index. */
    static Stamps of(ByteBuf reply) {
      int at = reply.readerIndex();
      return new Stamps(
          reply.getLong(at + KERNEL_RECEIVED_AT), reply.getLong(at + RECEIVED_AT), reply.getLong(at + SENT_AT));
    }
  }
}
