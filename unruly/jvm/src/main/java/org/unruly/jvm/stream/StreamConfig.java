package org.unruly.jvm.stream;

import java.net.InetSocketAddress;
import java.util.List;
import org.unruly.jvm.Options;

/**
 * What both sides of a stream must agree on, and where this side is.
 *
 * @param listen this side's address; port 0 leaves the choice to the kernel
 * @param messageBytes size of each message, its head included
 * @param sample every so-many-th message is stamped; 0 = none
 * @param cookie of the run: messages with another are ignored
 * @param readers how many read; more than one only in a group
 * @param joins whether this end comes to a group that the first reader has founded
 * @param driver directory of a stand-alone media driver (Aeron), or null for one of our own
 */
public record StreamConfig(InetSocketAddress listen, int messageBytes, int sample, int cookie, int readers, boolean joins, String driver) {
  /** More than any protocol takes here; each has its own limit below. */
  private static final int MESSAGE_BYTES_MAX = 16 << 20;

  private static final int READERS_MAX = 8;

  /** The terms of a command line. */
  public static StreamConfig of(Options options) {
    return new StreamConfig(
        options.address("listen"),
        (int) options.number("message", Header.BYTES, MESSAGE_BYTES_MAX),
        (int) options.number("sample", 0, Integer.MAX_VALUE),
        (int) options.number("cookie", 0, 0xFFFF_FFFFL),
        options.has("readers") ? (int) options.number("readers", 1, READERS_MAX) : 1,
        options.has("joins") && options.oneOf("joins", List.of("yes", "no")).equals("yes"),
        options.has("driver") ? options.text("driver") : null);
  }

  /** The address as one reads it. */
  public String listenText() {
    return listen.getAddress().getHostAddress() + ":" + listen.getPort();
  }
}
