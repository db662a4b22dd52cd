package org.unruly.jvm.stream;

import java.net.InetSocketAddress;
import org.unruly.jvm.Options;

/**
 * What both sides of a stream must agree on, and where this side is.
 *
 * @param listen this side's address; port 0 leaves the choice to the kernel
 * @param messageBytes size of each message, its head included
 * @param sample every so-many-th message is stamped; 0 = none
 * @param cookie of the run: messages with another are ignored
 * @param driver directory of a stand-alone media driver (Aeron), or null for one of our own
 */
public record Terms(InetSocketAddress listen, int messageBytes, int sample, int cookie, String driver) {
  /** More than any protocol takes here; each has its own limit below. */
  private static final int MESSAGE_BYTES_MAX = 16 << 20;

  /** The terms of a command line. */
  public static Terms of(Options options) {
    return new Terms(
        options.address("listen"),
        (int) options.number("message", Header.BYTES, MESSAGE_BYTES_MAX),
        (int) options.number("sample", 0, Integer.MAX_VALUE),
        (int) options.number("cookie", 0, 0xFFFF_FFFFL),
        options.has("driver") ? options.text("driver") : null);
  }

  /** The address as one reads it. */
  public String listenText() {
    return listen.getAddress().getHostAddress() + ":" + listen.getPort();
  }
}
