package org.unruly.jvm.agent;

import java.net.InetSocketAddress;
import java.nio.file.Path;
import org.unruly.jvm.Options;

/**
 * What a member of the group is told when it starts.
 *
 * @param listen the server's address; port 0 leaves the choice to the kernel
 * @param asking the socket at which the agent asks
 * @param codec of the run
 * @param wallOffsetNs what is added to CLOCK_MONOTONIC to give the wall clock
 * @param timeoutNs what is open for longer after its intended time is forgotten
 * @param disk the ring file of replies, or null without one
 * @param diskBytes its length
 */
public record AgentConfig(
    InetSocketAddress listen, Path asking, Codec codec, long wallOffsetNs, long timeoutNs, Path disk, long diskBytes) {
  /** The most that a plan allows. */
  private static final int BODY_BYTES_MAX = 16 << 20;

  private static final long DISK_BYTES_MAX = 64L << 30;

  /** Years: what is added to a stamp never overflows. */
  private static final long TIMEOUT_NS_MAX = Long.MAX_VALUE / 4;

  /** The terms of a command line. */
  public static AgentConfig of(Options options) {
    int cookie = (int) options.number("cookie", 0, 0xFFFF_FFFFL);
    int bodyBytes = (int) options.number("body", 0, BODY_BYTES_MAX);
    boolean hasDisk = options.has("disk");
    return new AgentConfig(
        options.address("listen"),
        Path.of(options.text("asking")),
        new Codec(cookie, bodyBytes),
        options.number("wall-offset", Long.MIN_VALUE / 2, Long.MAX_VALUE / 2),
        options.number("patience", 1, TIMEOUT_NS_MAX),
        hasDisk ? Path.of(options.text("disk")) : null,
        hasDisk ? options.number("disk-bytes", bodyBytes + Codec.REPLY_BYTES, DISK_BYTES_MAX) : 0);
  }

  /** The address as one reads it. */
  String listenText() {
    return listen.getAddress().getHostAddress() + ":" + listen.getPort();
  }
}
