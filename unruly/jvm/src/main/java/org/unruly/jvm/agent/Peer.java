package org.unruly.jvm.agent;

import java.net.InetSocketAddress;
import org.unruly.jvm.Problem;
import org.unruly.jvm.foreign.Command;

/**
 * Whom a connection of the agent asks.
 *
 * @param server its number
 * @param client the number of who asks
 * @param address of its server
 * @param datagrams whether over UDP
 */
record Peer(int server, int client, InetSocketAddress address, boolean datagrams) {
  private static final int ID_MAX = 0xFFFF;
  private static final int PORT_MAX = 0xFFFF;

  /** The peer of a record's fields. */
  static Peer of(long[] fields) {
    int server = (int) within("server", fields[0], 0, ID_MAX);
    int client = (int) within("client", fields[1], 0, ID_MAX);
    long address = within("address", fields[2], 0, 0xFFFF_FFFFL);
    long port = within("port", fields[3], 1, PORT_MAX);
    return new Peer(server, client, Command.address(address, port), within("transport", fields[4], 0, 1) == 1);
  }

  /** The head of a request to it. */
  Head head(long request, int flags) {
    return new Head(flags, request, client, server);
  }

  private static long within(String name, long value, long least, long most) {
    if (value < least || value > most) {
      String wrong = "the " + name + " of a route is " + value;
      throw new Problem("agent", wrong, "from " + least + " to " + most, "see unruly/schema/foreign.md");
    }
    return value;
  }
}
