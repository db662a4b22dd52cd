package org.unruly.jvm.agent;

import java.net.InetSocketAddress;
import java.nio.file.Path;
import org.unruly.jvm.Options;

/**
 * The configuration of a member of the group.
 *
 * @param listen the server's address; port 0 leaves the choice to the kernel
 * @param asking the socket on which the agent sends its requests
 * @param codec the codec of the run
 * @param wallOffsetNs the wall clock minus CLOCK_MONOTONIC
 * @param timeoutNs the time after its scheduled time at which an open request is forgotten
 * @param disk the ring file of replies, or null without one
 * @param diskBytes its length
 */
public record AgentConfig(
    InetSocketAddress listen, Path asking, Codec codec, long wallOffsetNs, long timeoutNs, Path disk, long diskBytes) {
  /** The most that a plan allows. */
  private static final int BODY_BYTES_MAX = 16 << 20;

  private static final long DISK_BYTES_MAX = 64L << 30;

  /** Years: adding it to a stamp never overflows. */
  private static final long TIMEOUT_NS_MAX = Long.MAX_VALUE / 4;

  /** Reads the configuration from a command line. */
  public static AgentConfig of(Options options) {
    int cookie = (int) options.number("cookie", 0, 0xFFFF_FFFFL);
    int bodyBytes = (int) options.number("body", 0, BODY_BYTES_MAX);
    boolean hasDisk = options.has("disk");
    return new AgentConfig(
        options.address("listen"),
        Path.of(options.text("asking")),
        new Codec(cookie, bodyBytes),
        options.number("wall-offset", Long.MIN_VALUE / 2, Long.MAX_VALUE / 2),
        options.number("timeout", 1, TIMEOUT_NS_MAX),
        hasDisk ? Path.of(options.text("disk")) : null,
        hasDisk ? options.number("disk-bytes", bodyBytes + Codec.REPLY_BYTES, DISK_BYTES_MAX) : 0);
  }

  /** Returns the address as text. */
  String listenText() {
    return listen.getAddress().getHostAddress() + ":" + listen.getPort();
  }
}
