package org.unruly.jvm.protocol;

import java.io.DataOutput;
import java.io.IOException;
import java.net.DatagramPacket;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.MulticastSocket;
import java.net.NetworkInterface;
import java.net.ServerSocket;
import java.net.SocketTimeoutException;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.concurrent.TimeUnit;
import org.jgroups.Address;
import org.jgroups.BytesMessage;
import org.jgroups.Event;
import org.jgroups.JChannel;
import org.jgroups.Message;
import org.jgroups.Receiver;
import org.jgroups.View;
import org.jgroups.protocols.Discovery;
import org.jgroups.protocols.UDP;
import org.jgroups.protocols.pbcast.GMS;
import org.jgroups.stack.IpAddress;
import org.unruly.jvm.Problem;
import org.unruly.jvm.stream.StreamConfig;

/**
 * A member of the group of a run, over a stack that JGroups comes with.
 *
 * <p>The first reader joins when it is opened and is then alone; the writer, and any other reader, join when they get
 * its address. So the kernel can choose the ports, and no one forms a group of its own that would have to merge.
 */
final class JGroupsMember {
  /**
   * On a quiet host they meet in less than a second. When no answer comes through, the second founds a group of its own,
   * which its rounds of merging make one with the first's after about a minute.
   */
  private static final long VIEW_NS = 75_000_000_000L;

  /** The second knows that there is a first: before it founds a group of its own it waits longer than the bundled 1 or 2 s. */
  private static final long JOIN_MS = 10_000;

  /** In that time it asks so often: one ask alone may be lost, and was in one of thirty runs. */
  private static final int DISCOVERIES = 10;

  private final String protocol;
  private final StreamConfig config;
  private final JChannel channel;
  private final Set<Address> served = new HashSet<>();
  private List<Address> members = List.of();
  private boolean met;
  private boolean left;
  private boolean closed;

  /**
   * A member that has not joined.
   *
   * @param protocol its name, {@code jgroups-udp} or {@code jgroups-tcp}
   * @param first where a member already is, or null to be the first
   */
  JGroupsMember(String protocol, StreamConfig config, InetSocketAddress first) throws IOException {
    this.protocol = protocol;
    this.config = config;
    boolean tcp = protocol.equals("jgroups-tcp");
    int port = tcp && config.listen().getPort() == 0 ? freePort(config) : config.listen().getPort();
    channel = open(tcp ? "tcp.xml" : "udp.xml", config, port, first);
  }

  /**
   * A port that is free: with a list of members JGroups takes no port 0. When another takes it meanwhile, JGroups takes
   * one of the next, and reports it.
   */
  private static int freePort(StreamConfig config) throws IOException {
    try (ServerSocket free = new ServerSocket()) {
      free.bind(config.listen());
      return free.getLocalPort();
    }
  }

  /** The bundled stacks take what differs from properties of the system, read while a channel is made. */
  private static synchronized JChannel open(String stack, StreamConfig config, int port, InetSocketAddress first) throws IOException {
    String host = config.listen().getAddress().getHostAddress();
    String members = first == null ? host + "[" + port + "]" : first.getAddress().getHostAddress() + "[" + first.getPort() + "]";
    System.setProperty("jgroups.bind_addr", host);
    System.setProperty("jgroups.bind_port", Integer.toString(port));
    System.setProperty("jgroups.tcpping.initial_hosts", members);
    // only that port: the next ones are other runs'
    System.setProperty("jgroups.tcp.port_range", "0");
    // nothing leaves the link
    System.setProperty("jgroups.udp.ip_ttl", "1");
    try {
      JChannel channel = new JChannel(stack);
      if (first != null) {
        GMS membership = channel.getProtocolStack().findProtocol(GMS.class);
        membership.setJoinTimeout(JOIN_MS);
        Discovery discovery = channel.getProtocolStack().findProtocol(Discovery.class);
        discovery.setValue("num_discovery_runs", DISCOVERIES);
      }
      return channel;
    } catch (Exception thrown) {
      throw new IOException(thrown.getMessage(), thrown);
    }
  }

  /** Joins the group, whose name is the run's. */
  void join(Receiver receiver) throws IOException {
    checkMulticast();
    channel.setReceiver(receiver);
    try {
      channel.connect(String.format("unruly-%08x", config.cookie()));
    } catch (Exception thrown) {
      throw new IOException(thrown.getMessage(), thrown);
    }
  }

  private void checkMulticast() {
    UDP transport = channel.getProtocolStack().findProtocol(UDP.class);
    if (transport == null || Multicast.comesBack(config.listen().getAddress(), transport.getMcastGroupAddr())) {
      return;
    }
    String wrong = "nothing that is sent to " + transport.getMcastGroupAddr().getHostAddress() + " comes back to " + config.listen().getAddress().getHostAddress();
    throw new Problem(protocol, wrong, "a network with multicast", "try jgroups-tcp");
  }

  JChannel channel() {
    return channel;
  }

  /** The port of its transport. */
  int port() {
    Object address = channel.down(new Event(Event.GET_PHYSICAL_ADDRESS, channel.getAddress()));
    return address instanceof IpAddress ip ? ip.getPort() : -1;
  }

  /** Handles a new view of the group. */
  synchronized void see(View view) {
    left |= members.stream().anyMatch(it -> !view.containsMember(it) && !served.contains(it));
    members = view.getMembers();
    met |= members.size() > config.readers();
    notifyAll();
  }

  /** Records that a reader has everything: it may leave now. */
  synchronized void serve(Address reader) {
    served.add(reader);
    notifyAll();
  }

  /** Returns true if a member has left before it had everything. */
  synchronized boolean hasLeft() {
    return left;
  }

  /**
   * Waits for the writer and all readers.
   *
   * @return how many they are
   */
  int awaitAll() {
    int wanted = config.readers() + 1;
    if (!await(() -> met || closed, System.nanoTime() + VIEW_NS)) {
      int found = size();
      String there = found < 2 ? "no other member" : "only " + found + " members";
      String wrong = there + " in " + VIEW_NS / 1_000_000_000 + " s at " + config.listenText();
      String hint = protocol.equals("jgroups-udp") ? "is there multicast? try jgroups-tcp" : "start the reader first";
      throw new Problem(protocol, wrong, "a view of " + wanted, hint);
    }
    return wanted;
  }

  private synchronized int size() {
    return members.size();
  }

  /**
   * Waits until all readers have everything, or one has left without, or a time.
   *
   * @return how many readers have everything
   */
  int awaitServed(long untilNs) {
    await(() -> served.size() >= config.readers() || left || closed, untilNs);
    synchronized (this) {
      return served.size();
    }
  }

  /** Whoever waits ends. */
  synchronized void wake() {
    closed = true;
    notifyAll();
  }

  void close() {
    wake();
    channel.close();
  }

  private synchronized boolean await(java.util.function.BooleanSupplier come, long untilNs) {
    try {
      while (!come.getAsBoolean()) {
        long leftNs = untilNs - System.nanoTime();
        if (leftNs <= 0) {
          return false;
        }
        TimeUnit.NANOSECONDS.timedWait(this, leftNs);
      }
    } catch (InterruptedException thrown) {
      Thread.currentThread().interrupt();
      return false;
    }
    return true;
  }

  /** Whether datagrams to many reach anybody: where they do not, a group would only be found to be empty. */
  static final class Multicast {
    private static final int TRIES = 5;
    private static final int WAIT_MS = 1000;

    private Multicast() {}

    /**
     * Sends to a group and listens to it, over the network of one address, at a port that nobody else has.
     *
     * @return true if the sent datagram came back
     */
    static boolean comesBack(InetAddress own, InetAddress group) {
      try (MulticastSocket socket = new MulticastSocket(0)) {
        NetworkInterface network = NetworkInterface.getByInetAddress(own);
        socket.setNetworkInterface(network);
        socket.setTimeToLive(0);
        socket.setSoTimeout(WAIT_MS);
        socket.joinGroup(new InetSocketAddress(group, 0), network);
        byte[] sent = (own.getHostAddress() + ":" + socket.getLocalPort()).getBytes(StandardCharsets.US_ASCII);
        byte[] room = new byte[sent.length + 1];
        for (int tries = 0; tries < TRIES; tries++) {
          socket.send(new DatagramPacket(sent, sent.length, group, socket.getLocalPort()));
          DatagramPacket came = new DatagramPacket(room, room.length);
          try {
            socket.receive(came);
          } catch (SocketTimeoutException thrown) {
            continue;
          }
          if (Arrays.equals(sent, Arrays.copyOf(room, came.getLength()))) {
            return true;
          }
        }
        return false;
      } catch (IOException thrown) {
        // the system has no way there, or none that we may take
        return false;
      }
    }
  }

  /**
   * A message with a head of its own and a body that all share; it arrives as any message of bytes does.
   *
   * <p>The group keeps each message until all have it: what it keeps outlives young collections, and a body each would be
   * copied in all of them.
   */
  static final class HeadedMessage extends BytesMessage {
    private final byte[] whole;

    /**
     * A message to all.
     *
     * @param head its first bytes, which nobody changes any more
     * @param whole its length, and its bytes after the head, which nobody changes either
     */
    HeadedMessage(byte[] head, byte[] whole) {
      super(null, head);
      this.whole = whole;
    }

    @Override
    public int getLength() {
      return whole.length;
    }

    /** The whole of it, for who cuts it into fragments. */
    @Override
    public byte[] getArray() {
      byte[] copy = whole.clone();
      System.arraycopy(array, 0, copy, 0, array.length);
      return copy;
    }

    /** A copy goes to one member that has missed it: it is whole. */
    @Override
    protected Message copyPayload(Message copy) {
      return copy.setArray(getArray(), 0, whole.length);
    }

    @Override
    protected int sizeOfPayload() {
      return super.sizeOfPayload() - array.length + whole.length;
    }

    @Override
    public void writePayload(DataOutput out) throws IOException {
      out.writeInt(whole.length);
      out.write(array);
      out.write(whole, array.length, whole.length - array.length);
    }
  }
}
