package org.unruly.systems;

import java.io.DataInput;
import java.io.DataOutput;
import java.io.IOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.locks.LockSupport;
import java.util.function.Supplier;
import org.jgroups.Address;
import org.jgroups.BytesMessage;
import org.jgroups.Header;
import org.jgroups.JChannel;
import org.jgroups.Message;
import org.jgroups.Receiver;
import org.jgroups.View;
import org.jgroups.conf.ClassConfigurator;
import org.jgroups.protocols.Discovery;
import org.jgroups.protocols.MERGE3;
import org.jgroups.protocols.pbcast.GMS;
import org.jgroups.util.NameCache;
import org.unruly.jvm.Options;

/**
 * Members of a JGroups group, over its own stack for TCP: a message to the server comes back as a
 * message to its sender.
 *
 * <p>The client is one member, which all its workers share. A header has the number of the worker's
 * connection and of its call. A server that was started again is a group of its own, which the
 * stack merges with the client's.
 */
final class JGroupsEcho implements EchoSystem {
  private static final String SERVER = "server";
  private static final String GROUP = "unruly-echo";

  /** JGroups leaves the numbers from 1024 to its users. */
  private static final short HEADER = 2_001;

  /** The server is the first member, so nobody answers when it looks for others. */
  private static final long ALONE_MS = 50;

  private static final long MERGE_LEAST_MS = 500;
  private static final long MERGE_MOST_MS = 1_500;

  /** In the time to join, a client asks so often: one question alone may be lost. */
  private static final int DISCOVERIES = 10;

  @Override
  public void serve(Options options) throws Exception {
    int port = EchoSystem.port(options);
    JChannel channel = channel(options.text("host"), port, options, ALONE_MS);
    channel.name(SERVER);
    channel.setReceiver(
        new Receiver() {
          @Override
          public void receive(Message message) {
            echo(channel, message);
          }
        });
    channel.connect(GROUP);
  }

  private static void echo(JChannel channel, Message message) {
    Call call = message.getHeader(HEADER);
    if (call == null) {
      return;
    }
    try {
      byte[] bytes = message.getArray();
      int offset = message.getOffset();
      channel.send(message(message.src(), bytes, offset, message.getLength(), call));
    } catch (Exception thrown) {
      System.err.println("jgroups: an echo was not sent: " + thrown.getMessage());
    }
  }

  /** Returns a message that is delivered at once, not after those that its sender sent before. */
  private static Message message(Address to, byte[] bytes, int offset, int length, Call call) {
    return new BytesMessage(to, bytes, offset, length)
        .putHeader(HEADER, call)
        .setFlag(Message.Flag.OOB);
  }

  @Override
  public Client client(Options options, long timeoutNs) throws Exception {
    String host = options.text("host");
    int own;
    try (ServerSocket free = new ServerSocket(0, 1, InetAddress.getByName(host))) {
      own = free.getLocalPort();
    }
    return new Member(channel(host, own, options, START_NS / 1_000_000), timeoutNs);
  }

  /**
   * Returns a channel that has not joined.
   *
   * @param port its own port; that of the options is the server's
   */
  private static JChannel channel(String host, int port, Options options, long joinMs)
      throws Exception {
    ClassConfigurator.add(HEADER, Call.class);
    // the stack that JGroups comes with takes these when a channel is made
    System.setProperty("jgroups.bind_addr", host);
    System.setProperty("jgroups.bind_port", Integer.toString(port));
    String server = host + "[" + EchoSystem.port(options) + "]";
    System.setProperty("jgroups.tcpping.initial_hosts", server);
    System.setProperty("jgroups.tcp.port_range", "0");
    JChannel channel = new JChannel("tcp.xml");
    // it would listen on all addresses
    channel.getProtocolStack().getTransport().getDiagnosticsHandler().setEnabled(false);
    GMS membership = channel.getProtocolStack().findProtocol(GMS.class);
    membership.setJoinTimeout(joinMs);
    membership.printLocalAddress(false);
    Discovery discovery = channel.getProtocolStack().findProtocol(Discovery.class);
    discovery.setValue("num_discovery_runs", DISCOVERIES);
    MERGE3 merging = channel.getProtocolStack().findProtocol(MERGE3.class);
    merging.setMinInterval(MERGE_LEAST_MS).setMaxInterval(MERGE_MOST_MS);
    return channel;
  }

  /** The number of a worker's connection, and of its call. */
  public static final class Call extends Header {
    private int connection;
    private int number;

    /** Creates a header that is read next. */
    public Call() {}

    private Call(int connection, int number) {
      this.connection = connection;
      this.number = number;
    }

    @Override
    public short getMagicId() {
      return HEADER;
    }

    @Override
    public Supplier<? extends Header> create() {
      return Call::new;
    }

    @Override
    public int serializedSize() {
      return 2 * Integer.BYTES;
    }

    @Override
    public void writeTo(DataOutput out) throws IOException {
      out.writeInt(connection);
      out.writeInt(number);
    }

    @Override
    public void readFrom(DataInput in) throws IOException {
      connection = in.readInt();
      number = in.readInt();
    }
  }

  /** The client's member: it passes each reply to the worker that waits for it. */
  private static final class Member implements Client, Receiver {
    private final JChannel channel;
    private final long timeoutNs;
    private final AtomicInteger connections = new AtomicInteger();
    private final Map<Integer, MemberConnection> waiting = new ConcurrentHashMap<>();
    private volatile Address server;

    private Member(JChannel channel, long timeoutNs) {
      this.channel = channel;
      this.timeoutNs = timeoutNs;
    }

    @Override
    public synchronized Connection connect() throws Exception {
      if (!channel.isConnected()) {
        channel.setReceiver(this);
        channel.connect(GROUP);
      }
      Address found = server;
      if (found == null) {
        throw new Failure(Failure.Kind.DISCONNECTED, "the server is no member of the group");
      }
      int number = connections.incrementAndGet();
      MemberConnection connection = new MemberConnection(this, found, number);
      waiting.put(number, connection);
      return connection;
    }

    @Override
    public void viewAccepted(View view) {
      Address found = null;
      for (Address member : view.getMembers()) {
        if (SERVER.equals(NameCache.get(member))) {
          found = member;
        }
      }
      server = found;
      waiting.values().forEach(MemberConnection::wake);
    }

    @Override
    public void receive(Message message) {
      Call call = message.getHeader(HEADER);
      MemberConnection connection = call == null ? null : waiting.get(call.connection);
      if (connection != null) {
        connection.receive(call.number, message);
      }
    }
  }

  private static final class MemberConnection extends Connection {
    private final Member member;
    private final Address server;
    private final int connection;
    private int number;

    /** The number of the call that waits. */
    private volatile int expected;

    private volatile Message reply;
    private volatile Thread waiting;

    private MemberConnection(Member member, Address server, int connection) {
      this.member = member;
      this.server = server;
      this.connection = connection;
    }

    @Override
    void call(byte[] payload) throws Exception {
      long untilNs = System.nanoTime() + member.timeoutNs;
      reply = null;
      waiting = Thread.currentThread();
      expected = ++number;
      Call call = new Call(connection, number);
      member.channel.send(message(server, payload, 0, payload.length, call));
      while (reply == null) {
        long leftNs = untilNs - System.nanoTime();
        if (leftNs <= 0) {
          throw Failure.timeout(member.timeoutNs);
        }
        if (!server.equals(member.server)) {
          throw new Failure(Failure.Kind.DISCONNECTED, "the server left the group");
        }
        LockSupport.parkNanos(this, leftNs);
      }
      keep(reply.getArray(), reply.getOffset(), reply.getLength());
    }

    private void receive(int answered, Message message) {
      // the reply of a call that timed out has another number
      if (answered == expected) {
        reply = message;
        wake();
      }
    }

    private void wake() {
      LockSupport.unpark(waiting);
    }

    @Override
    public void close() {
      member.waiting.remove(connection);
    }
  }
}
