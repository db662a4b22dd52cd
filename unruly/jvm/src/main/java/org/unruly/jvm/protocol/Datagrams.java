package org.unruly.jvm.protocol;

import org.unruly.jvm.Problem;
import org.unruly.jvm.stream.Terms;

/** What both ends of UDP have in common. */
final class Datagrams {
  /** The most that a datagram of IPv4 carries. */
  static final int BYTES_MAX = 65_507;

  /** Asked for; the kernel gives what {@code net.core.rmem_max} and {@code wmem_max} allow. */
  static final int BUFFER_BYTES = 64 << 20;

  private Datagrams() {}

  static void check(Terms terms) {
    if (terms.messageBytes() > BYTES_MAX) {
      String wrong = "message is " + terms.messageBytes() + " bytes";
      throw new Problem("jvm-udp", wrong, "at most " + BYTES_MAX, "message=" + BYTES_MAX + ", or another protocol");
    }
  }
}
