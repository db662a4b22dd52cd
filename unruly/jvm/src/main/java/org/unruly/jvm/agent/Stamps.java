package org.unruly.jvm.agent;

import io.netty.buffer.ByteBuf;

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
